// The address of the page carries everything: `#bytes=…&kind=response&api=ApiVersions&version=4`.
const MOST = 16000;   // characters; longer addresses are cut by programs on their way

const toBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
  .replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
const fromBase64 = (text) => Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));

const through = async (bytes, stream) =>
  new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());

// Long ones are compressed, and begin with a full stop.
async function packed(bytes) {
  const plain = toBase64(bytes);
  if (plain.length < 300 || !self.CompressionStream) return plain;
  const short = '.' + toBase64(await through(bytes, new CompressionStream('deflate-raw')));
  return short.length < plain.length ? short : plain;
}

async function unpacked(text) {
  if (!text.startsWith('.')) return fromBase64(text);
  return through(fromBase64(text.slice(1)), new DecompressionStream('deflate-raw'));
}

// The part of an address that means this state; empty if it would be too long.
export async function linkOf({ bytes, beside, text, kind, api, version, name, at }) {
  if (bytes.length > 1 << 18) return '';
  const parts = new URLSearchParams();
  if (bytes.length) parts.set('bytes', await packed(bytes)); else if (text) parts.set('text', text);
  if (beside?.length) parts.set('beside', await packed(beside));
  if (kind !== 'guess') parts.set('kind', kind);
  if (kind === 'response') { parts.set('api', api); parts.set('version', version); }
  if (name) parts.set('name', name);
  if (at) parts.set('at', at);
  const link = '#' + parts;
  return link.length <= MOST ? link : '';
}

// What an address means; null if it means nothing.
export async function stateOf(hash) {
  const parts = new URLSearchParams(hash.slice(1));
  if (!parts.size) return null;
  const bytesOf = async (name) => {
    try { return parts.has(name) ? await unpacked(parts.get(name)) : null; } catch { return null; }
  };
  return {
    bytes: await bytesOf('bytes') ?? new Uint8Array(), beside: await bytesOf('beside'), text: parts.get('text') ?? '',
    kind: parts.get('kind') ?? 'guess', api: parts.get('api') ?? '', name: parts.get('name') ?? '',
    version: parts.has('version') ? Number(parts.get('version')) : null, at: Number(parts.get('at') ?? 0),
  };
}
