// What a program with confluent-kafka-go's registry client does: register, evolve, be refused, read back, delete, and
// keep encryption keys. Argument: the registry's address. Prints one JSON document.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/rest"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/rules/encryption/deks"
)

const order = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}%s]}`

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// code gives the number of an error that the registry answered with.
func code(err error) int {
	var refused *rest.Error
	if !errors.As(err, &refused) {
		return 0
	}
	return refused.Code
}

func schemas(config *schemaregistry.Config, out map[string]any) {
	client := must(schemaregistry.NewClient(config))
	avro := func(more string) schemaregistry.SchemaInfo {
		return schemaregistry.SchemaInfo{Schema: fmt.Sprintf(order, more), SchemaType: "AVRO"}
	}
	first := must(client.Register("confluent-value", avro(""), false))
	second := must(client.Register("confluent-value", avro(`,{"name":"note","type":"string","default":""}`), false))
	out["newer"] = second > first
	wrong := avro(`,{"name":"price","type":"double"}`)
	out["compatible"] = must(client.TestSubjectCompatibility("confluent-value", wrong))
	_, err := client.Register("confluent-value", wrong, false)
	out["refused"] = code(err)
	out["versions"] = must(client.GetAllVersions("confluent-value"))
	out["latest"] = must(client.GetLatestSchemaMetadata("confluent-value")).ID == second
	out["found"] = must(client.GetID("confluent-value", avro(""), false)) == first
	out["text"] = must(client.GetBySubjectAndID("confluent-value", first)).Schema
	level := must(client.UpdateCompatibility("confluent-value", schemaregistry.Full))
	out["level"] = level.String()

	tagged := avro(`,{"name":"card","type":"string","default":"","confluent:tags":["PII"]}`)
	tagged.Metadata = &schemaregistry.Metadata{Properties: map[string]string{"owner": "shop"}}
	tagged.RuleSet = &schemaregistry.RuleSet{DomainRules: []schemaregistry.Rule{
		{Name: "encrypt", Kind: "TRANSFORM", Mode: "WRITEREAD", Type: "ENCRYPT", Tags: []string{"PII"}},
	}}
	must(client.Register("confluent-value", tagged, false))
	held := must(client.GetLatestWithMetadata("confluent-value", map[string]string{"owner": "shop"}, false))
	out["contract"] = []any{held.Version, held.RuleSet.DomainRules[0].Name}

	out["deleted"] = must(client.DeleteSubject("confluent-value", false))
	_, err = client.GetAllVersions("confluent-value")
	out["gone"] = code(err)
}

func keys(config *schemaregistry.Config, out map[string]any) {
	client := must(deks.NewClient(config))
	kek := must(client.RegisterKek("go-kek", "local-kms", "mine", nil, "", false))
	out["kek"] = []string{kek.Name, kek.KmsType, kek.KmsKeyID}
	dek := must(client.RegisterDek("go-kek", "confluent-value", "AES256_GCM", "AAAA"))
	out["dek"] = dek.Version
	// A second client, without the first one's memory, races for the same version.
	other := must(deks.NewClient(config))
	_, err := other.RegisterDek("go-kek", "confluent-value", "AES256_GCM", "AAAB")
	out["taken"] = code(err)
	out["first"] = must(other.GetDek("go-kek", "confluent-value", "AES256_GCM", false)).EncryptedKeyMaterial
	_, err = other.RegisterKek("go-kek", "local-kms", "other", nil, "", false)
	out["kekTaken"] = code(err)
	_, err = other.GetDekVersion("go-kek", "confluent-value", 7, "AES256_GCM", false)
	out["noDek"] = code(err)
}

func main() {
	config := schemaregistry.NewConfig(os.Args[1])
	out := map[string]any{}
	schemas(config, out)
	keys(config, out)
	fmt.Println(string(must(json.Marshal(out))))
}
