// The driver of kafkajs; contract.py says what each job does and prints. The first argument is where kafkajs is installed.
const [modules, job, ...words] = process.argv.slice(2)
const { Kafka, CompressionCodecs, CompressionTypes, ConfigResourceTypes, logLevel } = require(`${modules}/kafkajs`)

// By itself it has only gzip; the others are for its users to plug in.
const plug = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(await compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(await decompress(buffer)),
})
const lz4 = require(`${modules}/lz4-napi`)
const zstd = () => new Promise(ready => require(`${modules}/zstd-codec`).ZstdCodec.run(codec => ready(new codec.Streaming())))
CompressionCodecs[CompressionTypes.Snappy] = require(`${modules}/kafkajs-snappy`)
CompressionCodecs[CompressionTypes.LZ4] = plug(data => lz4.compressFrame(data), data => lz4.decompressFrame(data))
CompressionCodecs[CompressionTypes.ZSTD] = plug(async data => (await zstd()).compress(data), async data => (await zstd()).decompress(data))

const options = {}
for (let i = 0; i + 1 < words.length; i += 2) options[words[i].slice(2)] = words[i + 1]
const { topic, group } = options
const number = name => Number(options[name] || 0)
const range = (first, count) => Array.from({ length: count }, (_, index) => first + index)
const partitions = range(0, number('partitions'))

const say = line => console.log(JSON.stringify(line))
const sayRecord = (partition, { offset, key, value }) => say({ partition, offset: Number(offset), key: key.toString(), value: value.toString() })
const record = n => ({ key: `key-${n}`, value: `value-${n} ${'abcdefghij'.repeat(20)}` })

const kafka = new Kafka({
  brokers: [options.bootstrap], logLevel: logLevel.WARN,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 60 },   // a broker that restarts is away for a while
})

async function withAdmin(work) {
  const admin = kafka.admin()
  await admin.connect()
  try { return await work(admin) } finally { await admin.disconnect() }
}

async function withProducer(settings, work) {
  const producer = kafka.producer(settings)
  await producer.connect()
  try { return await work(producer) } finally { await producer.disconnect() }
}

const consumer = settings => kafka.consumer({ maxWaitTimeInMs: 100, ...settings })

const jobs = {
  async create() {
    await withAdmin(admin => admin.createTopics({ topics: [{ topic, numPartitions: number('partitions'), replicationFactor: 1 }] }))
    say({ created: topic })
  },

  async list() { say({ topics: await withAdmin(admin => admin.listTopics()) }) },

  async describe() {
    const { topics } = await withAdmin(admin => admin.fetchTopicMetadata({ topics: [topic] }))
    for (const { partitionId, leader } of topics[0].partitions) say({ partition: partitionId, leader })
  },

  async grow() {
    await withAdmin(admin => admin.createPartitions({ topicPartitions: [{ topic, count: number('partitions') }] }))
    say({ partitions: number('partitions') })
  },

  // It knows only the old request, which sets everything that it doesn't name back to the default.
  async configure() {
    const [name, value] = options.config.split('=')
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    await withAdmin(async admin => {
      await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name, value }] }] })
      const { resources } = await admin.describeConfigs({ resources: [resource] })
      say({ name, value: resources[0].configEntries.find(entry => entry.configName === name).configValue })
    })
  },

  async delete() {
    await withAdmin(admin => admin.deleteTopics({ topics: [topic] }))
    say({ deleted: topic })
  },

  async produce() {
    const { None: none, GZIP: gzip, Snappy: snappy, LZ4: lz4, ZSTD: zstd } = CompressionTypes
    const compression = { none, gzip, snappy, lz4, zstd }[options.codec || 'none']
    await withProducer({ idempotent: Boolean(options.idempotent) }, producer =>
      producer.send({ topic, compression, acks: -1, messages: range(number('first'), number('count')).map(record) }))
    say({ produced: number('count') })
  },

  async transact() {
    const committed = [], aborted = []
    await withProducer({ transactionalId: options.id, idempotent: true, maxInFlightRequests: 1 }, async producer => {
      for (const first of [0, 10, 20, 30, 40]) {
        const commit = first % 20 === 0
        const transaction = await producer.transaction()
        await transaction.send({ topic, messages: range(first, 10).map(record) })
        await (commit ? transaction.commit() : transaction.abort())
        ;(commit ? committed : aborted).push(...range(first, 10))
      }
    })
    say({ committed, aborted })
  },

  async copy() {
    const records = [], next = {}
    const reader = consumer({ groupId: group, readUncommitted: false })
    await reader.connect()
    await reader.subscribe({ topic, fromBeginning: true })
    await new Promise((resolve, reject) => reader.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        records.push({ key: message.key, value: message.value })
        next[partition] = String(Number(message.offset) + 1)
        if (records.length === number('count')) resolve()
      },
    }).catch(reject))
    const offsets = Object.entries(next).map(([partition, offset]) => ({ partition: Number(partition), offset }))
    await withProducer({ transactionalId: options.id, idempotent: true, maxInFlightRequests: 1 }, async producer => {
      for (const end of ['abort', 'commit']) {
        const transaction = await producer.transaction()
        await transaction.send({ topic: options.to, messages: records })
        await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: offsets }] })
        await transaction[end]()
      }
    })
    await reader.disconnect()
    say({ copied: records.length })
  },

  // It has no consumers without a group: this one is the only member of one of its own.
  async consume() {
    const reader = consumer({ groupId: `alone-${process.pid}-${Date.now()}`, readUncommitted: options.isolation !== 'read_committed' })
    await reader.connect()
    await reader.subscribe({ topic, fromBeginning: true })
    let seen = 0
    await new Promise((resolve, reject) => reader.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (seen < number('count')) sayRecord(partition, message)
        if (++seen === number('count')) resolve()
      },
    }).catch(reject))
    await reader.disconnect()
  },

  async offsets() {
    for (const { partition, low, high } of await withAdmin(admin => admin.fetchTopicOffsets(topic))) say({ partition, earliest: Number(low), latest: Number(high) })
  },

  async member() {
    const reader = consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 500, readUncommitted: true })
    reader.on(reader.events.GROUP_JOIN, ({ payload }) => say({ assigned: [...(payload.memberAssignment[topic] || [])].sort() }))
    reader.on(reader.events.CRASH, ({ payload }) => { if (!payload.restart) { console.error(payload.error); process.exit(1) } })
    await reader.connect()
    await reader.subscribe({ topic, fromBeginning: true })
    await reader.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        for (const message of batch.messages) sayRecord(batch.partition, message)
        await reader.commitOffsets([{ topic, partition: batch.partition, offset: String(Number(batch.lastOffset()) + 1) }])
      },
    })
    process.stdin.resume()
    await new Promise(resolve => process.stdin.on('end', resolve))
    await reader.disconnect()
    say({ left: true })
  },

  async groups() {
    await withAdmin(async admin => {
      if ((await admin.listGroups()).groups.some(({ groupId }) => groupId === group)) {
        const { groups: [{ state, members }] } = await admin.describeGroups([group])
        say({ group, state, members: members.length })
      }
      const [{ partitions: found }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
      for (const { partition, offset } of found) say({ partition, committed: Number(offset) })
    })
  },

  async forget() {
    await withAdmin(admin => admin.deleteGroups([group]))
    say({ forgotten: group })
  },

  async reassign() {
    const assignment = partitions.map(partition => ({ partition, replicas: [number('to')] }))
    await withAdmin(async admin => {
      await admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment: assignment }] })
      const { topics } = await admin.listPartitionReassignments({ topics: [{ topic, partitions }] })
      say({ moving: topics.flatMap(each => each.partitions.map(({ partition }) => partition)) })
    })
  },

  async truncate() {
    const offset = options.before
    await withAdmin(async admin => {
      await admin.fetchTopicOffsets(topic)   // otherwise it doesn't know who leads the partitions, and doesn't ask
      await admin.deleteTopicRecords({ topic, partitions: partitions.map(partition => ({ partition, offset })) })
      for (const { partition, low } of await admin.fetchTopicOffsets(topic)) say({ partition, earliest: Number(low) })
    })
  },
}

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const end = code => process.stdout.write('', () => process.exit(code))   // when all that was said has been taken
jobs[job]().then(() => end(0), error => { console.error(error); end(1) })
