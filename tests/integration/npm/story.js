// What a program with @confluentinc/schemaregistry does: register, evolve, be refused, read back, serialize.
// Arguments: the registry's address, and a record in base 64 that another client wrote. Prints one JSON document.
const {
  AvroDeserializer, AvroSerializer, Compatibility, JsonDeserializer, JsonSerializer, SchemaRegistryClient, SerdeType,
} = require("@confluentinc/schemaregistry");

const [url, theirs] = process.argv.slice(2);
const fields = [{ name: "id", type: "long" }, { name: "customer", type: "string" }];
const record = (more) => JSON.stringify({ type: "record", name: "Order", fields: [...fields, ...more] });

async function main() {
  const client = new SchemaRegistryClient({ baseURLs: [url], cacheCapacity: 100 });
  const out = {};
  out.first = await client.register("npm-value", { schemaType: "AVRO", schema: record([]) });
  const note = { name: "note", type: ["null", "string"], default: null };
  out.second = await client.register("npm-value", { schemaType: "AVRO", schema: record([note]) });
  const wrong = { schemaType: "AVRO", schema: record([{ name: "price", type: "double" }]) };
  out.compatible = await client.testSubjectCompatibility("npm-value", wrong);
  out.refused = await client.register("npm-value", wrong).catch((error) => [error.status, error.errorCode]);
  out.versions = await client.getAllVersions("npm-value");
  const latest = await client.getLatestSchemaMetadata("npm-value");
  out.latest = [latest.id, latest.version];
  out.text = (await client.getBySubjectAndId("npm-value", out.first)).schema;
  out.level = await client.updateCompatibility("npm-value", Compatibility.FULL);
  out.levelRead = await client.getCompatibility("npm-value");

  const avro = new AvroSerializer(client, SerdeType.VALUE, { useLatestVersion: true });
  const order = { id: 7, customer: "ann", note: "x" };
  out.avro = (await avro.serialize("npm", order)).toString("base64");
  const read = await new AvroDeserializer(client, SerdeType.VALUE, {}).deserialize("npm", Buffer.from(theirs, "base64"));
  out.theirs = { id: Number(read.id), customer: read.customer };

  const cart = JSON.stringify({ type: "object", properties: { n: { type: "integer" } } });
  await client.register("npm-json-value", { schemaType: "JSON", schema: cart });
  const json = new JsonSerializer(client, SerdeType.VALUE, { useLatestVersion: true, validate: true });
  const data = await json.serialize("npm-json", { n: 3 });
  out.json = data.toString("base64");
  out.jsonRead = await new JsonDeserializer(client, SerdeType.VALUE, {}).deserialize("npm-json", data);

  out.deleted = await client.deleteSubject("npm-json-value");
  out.gone = await client.getAllVersions("npm-json-value").catch((error) => [error.status, error.errorCode]);
  console.log(JSON.stringify(out));
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
