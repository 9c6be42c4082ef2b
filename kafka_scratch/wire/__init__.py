"Bytes and values: the types of Kafka's protocol, messages as declarations, and every byte explained."
from . import codegen   # codecs are compiled: it puts its functions in the place of the plain ones of `schema`
