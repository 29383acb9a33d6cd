// A client on franz-go: it writes, transacts and reads in a group, as its one argument (JSON) says.
// It prints the values that it has read, or one line that begins with "error: ".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	krb5 "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type way struct {
	Brokers, CA, Certificate, Mechanism, User, Password, Token, Topic string
	Keytab, Realm                                                     string
	DelegationToken                                                   bool
}

func check(err error) {
	if err != nil {
		fmt.Println("error:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

func options(given way) []kgo.Opt {
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(given.CA)
	check(err)
	roots.AppendCertsFromPEM(pem)
	encryption := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
	if given.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(given.Certificate, given.Certificate)
		check(err)
		encryption.Certificates = []tls.Certificate{pair}
	}
	login := scram.Auth{User: given.User, Pass: given.Password, IsToken: given.DelegationToken}
	made := []kgo.Opt{
		kgo.SeedBrokers(given.Brokers), kgo.DialTLSConfig(encryption), kgo.RecordDeliveryTimeout(20 * time.Second),
		kgo.RequestRetries(2),
	}
	switch given.Mechanism {
	case "PLAIN":
		made = append(made, kgo.SASL(plain.Auth{User: given.User, Pass: given.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		made = append(made, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		made = append(made, kgo.SASL(login.AsSha512Mechanism()))
	case "OAUTHBEARER":
		made = append(made, kgo.SASL(oauth.Auth{Token: given.Token}.AsMechanism()))
	case "GSSAPI":
		auth := kerberos.Auth{Service: "kafka", ClientFn: func(context.Context) *krb5.Client { return ticket(given) }}
		made = append(made, kgo.SASL(auth.AsMechanism()))
	}
	return made
}

func ticket(given way) *krb5.Client {
	realms, err := config.Load(os.Getenv("KRB5_CONFIG"))
	check(err)
	keys, err := keytab.Load(given.Keytab)
	check(err)
	return krb5.NewWithKeytab(given.User, given.Realm, keys, realms, krb5.DisablePAFXFAST(true))
}

func client(given way, more ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options(given), more...)...)
	check(err)
	return made
}

func main() {
	var given way
	check(json.Unmarshal([]byte(os.Args[1]), &given))
	limit, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	writer := client(given)
	check(writer.Ping(limit))
	for number := range 3 {
		record := &kgo.Record{Topic: given.Topic, Value: []byte(fmt.Sprint(number))}
		check(writer.ProduceSync(limit, record).FirstErr())
	}
	writer.Close()

	transactor := client(given, kgo.TransactionalID(given.Topic+"-franz"))
	check(transactor.BeginTransaction())
	for number := range 3 {
		record := &kgo.Record{Topic: given.Topic, Value: []byte(fmt.Sprint(number + 3))}
		check(transactor.ProduceSync(limit, record).FirstErr())
	}
	check(transactor.EndTransaction(limit, kgo.TryCommit))
	transactor.Close()

	reader := client(given, kgo.ConsumeTopics(given.Topic), kgo.ConsumerGroup(given.Topic+"-franz"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var values []string
	for len(values) < 6 {
		fetches := reader.PollFetches(limit)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	check(reader.CommitUncommittedOffsets(limit))
	reader.Close()
	fmt.Println(strings.Join(values, ","))
}
