package embed_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// greet works on a store wherever that is.
func greet(ctx context.Context, db kvd.Store) error {
	if err := db.Put(ctx, []byte("user/1"), []byte("Ada")); err != nil {
		return err
	}
	for item, err := range db.Scan(ctx, kvd.Prefix([]byte("user/"))) {
		if err != nil {
			return err
		}
		fmt.Printf("%s = %s\n", item.Key, item.Value)
	}
	return nil
}

// The line that opens the store decides where it is: kvd.Open("127.0.0.1:7070") for a
// server, embed.Open("data") for a directory of this process, embed.Memory() for a test.
func Example_embedded() {
	db, err := embed.Memory()
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			log.Print(err)
		}
	}()
	if err := greet(context.Background(), db); err != nil {
		log.Print(err)
	}
	// Output: user/1 = Ada
}
