package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// data is a kind of entries, always the same ones.
type data struct {
	name string
	next func(rng *rand.Rand) func(e *kv.Entry, number int)
}

// entries returns puts of so many bytes together, in the order of their keys: every
// sixteenth number or so, as one of sixteen partitions has them.
func (d data) entries(bytes int) []kv.Entry {
	rng := rand.New(rand.NewPCG(1, 1))
	next := d.next(rng)
	var entries []kv.Entry
	for i := 1; bytes > 0; i++ {
		e := kv.Entry{Kind: kv.KindPut, Seq: kv.SeqNum(1 + rng.IntN(1<<30))}
		next(&e, 16*i+rng.IntN(16))
		bytes -= len(e.Key) + len(e.Value)
		entries = append(entries, e)
	}
	return entries
}

// randoms has keys like those of the benchmarks, and values that do not compress.
func randoms(valueBytes int) data {
	return data{fmt.Sprintf("random values of %d B", valueBytes), func(rng *rand.Rand) func(*kv.Entry, int) {
		values := rand.NewChaCha8([32]byte{1})
		return func(e *kv.Entry, number int) {
			e.Key, e.Value = fmt.Appendf(nil, "%016d", number), make([]byte, valueBytes)
			_, _ = values.Read(e.Value) // it never fails
		}
	}}
}

var counters = data{"counters", func(rng *rand.Rand) func(*kv.Entry, int) {
	return func(e *kv.Entry, number int) {
		e.Key = fmt.Appendf(nil, "counter:%010d:views", number)
		e.Value = strconv.AppendInt(nil, 10_000_000+rng.Int64N(90_000_000), 10)
	}
}}

// pointers is what tables hold of values that lie in a value file.
var pointers = data{"pointers to values of 1 KiB", func(*rand.Rand) func(*kv.Entry, int) {
	at := kv.ValuePointer{File: 1234, Offset: 0, Length: 1 << 10}
	return func(e *kv.Entry, number int) {
		e.Key = fmt.Appendf(nil, "%016d", number)
		e.Value, e.Apart = at.AppendTo(nil), true
		at.Offset += 8 + uint64(at.Length)
	}
}}

// person is a record of a field or two of each type that services have.
type person struct {
	ID     int    `json:"id"`
	Name   string `json:"name"`
	Email  string `json:"email"`
	City   string `json:"city"`
	Active bool   `json:"active"`
	Points int    `json:"points"`
	Joined string `json:"joined"`
	Orders []item `json:"orders,omitempty"`
}

type item struct {
	SKU      string  `json:"sku"`
	Title    string  `json:"title"`
	Quantity int     `json:"quantity"`
	Price    float64 `json:"price"`
	Shipped  string  `json:"shipped"`
}

// records has JSON objects, with so many smaller ones in each.
func records(orders int) data {
	name := "JSON"
	if orders > 0 {
		name = fmt.Sprintf("JSON with %d orders", orders)
	}
	return data{name, func(rng *rand.Rand) func(*kv.Entry, int) {
		one := func(words []string) string { return words[rng.IntN(len(words))] }
		when := func() string { return time.Unix(1_700_000_000+rng.Int64N(80_000_000), 0).UTC().Format(time.RFC3339) }
		return func(e *kv.Entry, number int) {
			first, last := one(firstNames), one(lastNames)
			p := person{
				ID: number, Name: first + " " + last, Email: fmt.Sprintf("%s.%s%d@example.com", first, last, rng.IntN(1000)),
				City: one(cities), Active: rng.IntN(4) > 0, Points: rng.IntN(100_000), Joined: when(),
			}
			for range orders {
				p.Orders = append(p.Orders, item{
					SKU: fmt.Sprintf("%c%c-%06d", 'A'+rng.IntN(26), 'A'+rng.IntN(26), rng.IntN(1_000_000)), Title: one(adjectives) + " " + one(things),
					Quantity: 1 + rng.IntN(5), Price: float64(rng.IntN(50_000)) / 100, Shipped: when(),
				})
			}
			e.Key = fmt.Appendf(nil, "user:%012d:profile", number)
			e.Value, _ = json.Marshal(p) // plain fields: no error
		}
	}}
}

var (
	firstNames = []string{"Ada", "Alan", "Amir", "Anna", "Barbara", "Carlos", "Chen", "Dennis", "Edsger", "Elena", "Fatima", "Grace", "Hugo", "Ines", "Ivan", "Jan", "Jia", "Kofi", "Lena", "Luis", "Maria", "Mehmet", "Niklaus", "Nora", "Olga", "Pavel", "Priya", "Ravi", "Sofia", "Tomas", "Yuki", "Zoe"}
	lastNames  = []string{"Ahmed", "Andersson", "Bauer", "Bianchi", "Costa", "Dubois", "Fischer", "Garcia", "Haddad", "Hansen", "Ito", "Ivanova", "Jansen", "Kim", "Kowalski", "Lopez", "Martin", "Mensah", "Meyer", "Murphy", "Nguyen", "Novak", "Okafor", "Patel", "Petrov", "Rossi", "Sato", "Silva", "Smith", "Suzuki", "Tanaka", "Wang"}
	cities     = []string{"Accra", "Athens", "Bergen", "Berlin", "Bogota", "Cairo", "Delhi", "Dublin", "Geneva", "Hanoi", "Kyoto", "Lagos", "Lima", "Lisbon", "Lyon", "Madrid", "Milan", "Nairobi", "Osaka", "Oslo", "Porto", "Prague", "Quito", "Riga", "Seoul", "Sofia", "Toronto", "Turin", "Utrecht", "Vienna", "Warsaw", "Zurich"}
	adjectives = []string{"black", "blue", "cotton", "folding", "glass", "green", "heavy", "large", "leather", "light", "red", "small", "steel", "white", "wooden", "woollen"}
	things     = []string{"backpack", "blanket", "book shelf", "bottle", "chair", "coat", "desk lamp", "frame", "gloves", "jacket", "kettle", "lamp", "notebook", "pillow", "scarf", "table"}
)
