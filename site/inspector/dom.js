// An element with these properties, and these children.
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  if (properties.role) made.setAttribute('role', properties.role);
  made.append(...children);
  return made;
}
export const byId = (id) => document.getElementById(id);
// A sentence, with what is between backticks as code.
export const marked = (sentence) => sentence.split('`').map((text, n) => (n % 2 ? element('code', { textContent: text }) : text));
