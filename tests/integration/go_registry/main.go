// What a program with franz-go's sr package does: register, evolve, be refused, read back, serialize, delete.
// Arguments: the registry's address, and a record in base 64 that another client wrote. Prints one JSON document.
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

type cart struct {
	N int `json:"n"`
}

const order = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}%s]}`

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// refusal gives the status and the code of an error that the registry answered with.
func refusal(err error) []int {
	var response *sr.ResponseError
	if !errors.As(err, &response) {
		return []int{0}
	}
	return []int{response.StatusCode, response.ErrorCode}
}

func main() {
	ctx := context.Background()
	client := must(sr.NewClient(sr.URLs(os.Args[1])))
	out := map[string]any{}

	avro := func(more string) sr.Schema { return sr.Schema{Schema: fmt.Sprintf(order, more)} }
	first := must(client.CreateSchema(ctx, "go-value", avro("")))
	second := must(client.CreateSchema(ctx, "go-value", avro(`,{"name":"note","type":"string","default":""}`)))
	out["versions"] = must(client.SubjectVersions(ctx, "go-value"))
	out["numbers"] = []int{first.Version, second.Version}
	out["newer"] = second.ID > first.ID

	wrong := avro(`,{"name":"price","type":"double"}`)
	checked := must(client.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), "go-value", -1, wrong))
	out["compatible"], out["reasons"] = checked.Is, checked.Messages
	_, err := client.CreateSchema(ctx, "go-value", wrong)
	out["refused"] = refusal(err)
	found := must(client.LookupSchema(ctx, "go-value", avro("")))
	out["found"] = found.ID == first.ID && found.Version == 1
	out["text"] = must(client.SchemaTextByID(ctx, first.ID))
	out["users"] = must(client.SubjectsByID(ctx, first.ID))
	_, err = client.SchemaByID(ctx, 99999)
	out["unknown"] = refusal(err)

	for _, set := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFullTransitive}, "go-value") {
		must(0, set.Err)
		out["level"] = set.Level.String()
	}
	out["types"] = len(must(client.SupportedTypes(ctx)))

	pet := sr.Schema{Type: sr.TypeProtobuf, Schema: `syntax = "proto3"; message Pet { string name = 1; }`}
	must(client.CreateSchema(ctx, "pet.proto", pet))
	home := sr.Schema{
		Type:       sr.TypeProtobuf,
		Schema:     `syntax = "proto3"; import "pet.proto"; message Home { Pet pet = 1; }`,
		References: []sr.SchemaReference{{Name: "pet.proto", Subject: "pet.proto", Version: 1}},
	}
	must(client.CreateSchema(ctx, "home-value", home))
	for _, user := range must(client.SchemaReferences(ctx, "pet.proto", 1)) {
		out["referenced"] = user.Subject
	}

	schema := sr.Schema{Type: sr.TypeJSON, Schema: `{"type":"object","properties":{"n":{"type":"integer"}}}`}
	registered := must(client.CreateSchema(ctx, "go-json-value", schema))
	var serde sr.Serde
	serde.Register(registered.ID, cart{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	out["json"] = base64.StdEncoding.EncodeToString(must(serde.Encode(cart{3})))
	theirs := must(base64.StdEncoding.DecodeString(os.Args[2]))
	id, rest, err := serde.DecodeID(theirs)
	must(0, err)
	var read cart
	must(0, json.Unmarshal(rest, &read))
	out["theirs"], out["same"] = read.N, id == registered.ID

	out["deleted"] = must(client.DeleteSubject(ctx, "go-json-value", sr.SoftDelete))
	must(client.DeleteSubject(ctx, "go-json-value", sr.HardDelete))
	_, err = client.SubjectVersions(ctx, "go-json-value")
	out["gone"] = refusal(err)
	fmt.Println(string(must(json.Marshal(out))))
}
