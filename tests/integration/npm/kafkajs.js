// What a program with @kafkajs/confluent-schema-registry does: register, evolve, be refused, read back, serialize.
// Arguments: the registry's address, and a record in base 64 that another client wrote. Prints one JSON document.
const { COMPATIBILITY, SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

const [host, theirs] = process.argv.slice(2);
const fields = [{ name: "id", type: "long" }, { name: "customer", type: "string" }];
const order = (...more) => ({ type: "record", name: "Order", namespace: "shop", fields: [...fields, ...more] });
const note = { name: "note", type: ["null", "string"], default: null };

async function main() {
  const registry = new SchemaRegistry({ host, retry: { retries: 0 } });
  const out = {};
  const subject = "kafkajs-value";
  out.first = (await registry.register(order(), { subject })).id;
  out.second = (await registry.register(order(note), { subject })).id;
  out.again = (await registry.register(order(), { subject })).id;
  const wrong = order({ name: "price", type: "double" });
  out.refused = await registry.register(wrong, { subject }).catch((error) => [error.name, error.status]);
  const level = { subject, compatibility: COMPATIBILITY.FULL };
  out.level = await registry.register(order(), level).catch((error) => error.name);
  out.latest = await registry.getLatestSchemaId(subject);
  out.versions = [await registry.getRegistryId(subject, 1), await registry.getRegistryId(subject, "latest")];
  out.found = await registry.getRegistryIdBySchema(subject, { type: SchemaType.AVRO, schema: JSON.stringify(order()) });
  out.avro = (await registry.encode(out.second, { id: 7, customer: "ann", note: "x" })).toString("base64");
  const read = await registry.decode(Buffer.from(theirs, "base64"));
  out.theirs = { id: Number(read.id), customer: read.customer };

  const cart = { type: SchemaType.JSON, schema: '{"type":"object","properties":{"n":{"type":"integer"}}}' };
  const json = await registry.register(cart, { subject: "kafkajs-json-value" });
  out.json = (await registry.encode(json.id, { n: 3 })).toString("base64");
  out.jsonRead = await registry.decode(Buffer.from(out.json, "base64"));
  out.unknown = await registry.getSchema(99999).catch((error) => error.status);
  console.log(JSON.stringify(out));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
