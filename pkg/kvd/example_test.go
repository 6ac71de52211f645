package kvd_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// The examples speak to a server in memory in place of one at this address.
const address = "localhost:7070"

// memory runs a server until stop is called, and is the way to it.
func memory() (way kvd.Option, stop func()) {
	l := bufconn.Listen(1 << 16)
	s := service.New(servicetest.New(kv.DefaultLimits), service.Options{}, daemon.Protocols()...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	stop = func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-served); err != nil {
			log.Fatal(err)
		}
	}
	return kvd.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }), stop
}

func Example() {
	inMemory, stop := memory()
	defer stop()

	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	if err := db.Put(ctx, []byte("user/1"), []byte("Ada"), kvd.Durable(kvd.Sync)); err != nil {
		log.Fatal(err)
	}
	value, err := db.Get(ctx, []byte("user/1")) // errors.Is(err, kvd.ErrNotFound) if absent
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", value)
	for item, err := range db.Scan(ctx, kvd.Prefix([]byte("user/"))) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s\n", item.Key, item.Value)
	}
	// Output:
	// Ada
	// user/1 = Ada
}

func ExampleClient_Get() {
	inMemory, stop := memory()
	defer stop()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	_, err = db.Get(context.Background(), []byte("nothing here"))
	fmt.Println(errors.Is(err, kvd.ErrNotFound))
	// Output: true
}

func ExampleClient_Apply() {
	inMemory, stop := memory()
	defer stop()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	var batch kvd.Batch
	batch.Put([]byte("account/alice"), []byte("90")).
		Put([]byte("account/bob"), []byte("110")).
		Delete([]byte("transfer/1"))
	version, err := db.Apply(context.Background(), &batch)
	if err != nil {
		log.Fatal(err) // none of it happened, unless errors.Is(err, kvd.ErrUncertain)
	}
	fmt.Println("all of it at version", version)
	// Output: all of it at version 1
}

func ExampleClient_Scan() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	for _, user := range []string{"user/ada", "user/grace", "visit/1"} {
		if err := db.Put(ctx, []byte(user), []byte("here")); err != nil {
			log.Fatal(err)
		}
	}

	for item, err := range db.Scan(ctx, kvd.Prefix([]byte("user/")), kvd.Limit(10)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s\n", item.Key, item.Value)
	}
	// Output:
	// user/ada = here
	// user/grace = here
}

// A transfer between two accounts is a transaction. A concurrent transfer makes it run again.
func ExampleClient_Update() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	alice, bob := []byte("account/alice"), []byte("account/bob")
	if _, err := db.Apply(ctx, new(kvd.Batch).Put(alice, []byte("100")).Put(bob, []byte("20"))); err != nil {
		log.Fatal(err)
	}

	balance := func(r kvd.Reader, account []byte) (int, error) {
		value, err := r.Get(ctx, account)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(string(value))
	}
	errPoor := errors.New("not enough money")
	err = db.Update(ctx, func(tx *kvd.Txn) error {
		from, err := balance(tx, alice)
		if err != nil {
			return err
		}
		to, err := balance(tx, bob)
		if err != nil {
			return err
		}
		if from < 30 {
			return errPoor // nothing is written
		}
		if err := tx.Put(ctx, alice, []byte(strconv.Itoa(from-30))); err != nil {
			return err
		}
		return tx.Put(ctx, bob, []byte(strconv.Itoa(to+30)))
	})
	if err != nil {
		log.Fatal(err)
	}
	for item, err := range db.Scan(ctx, kvd.Prefix([]byte("account/"))) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s\n", item.Key, item.Value)
	}
	// Output:
	// account/alice = 70
	// account/bob = 50
}

// Each caller gets another number of the sequence.
func ExampleTransact() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put(ctx, []byte("orders"), []byte("41")); err != nil {
		log.Fatal(err)
	}

	order, err := kvd.Transact(ctx, db, func(tx *kvd.Txn) (int, error) {
		value, err := tx.Get(ctx, []byte("orders"))
		if err != nil {
			return 0, err
		}
		last, err := strconv.Atoi(string(value))
		if err != nil {
			return 0, err
		}
		return last + 1, tx.Put(ctx, []byte("orders"), []byte(strconv.Itoa(last+1)))
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("order", order)
	// Output: order 42
}

// A lock that frees itself if its holder is gone.
func ExampleIfAbsent() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	for _, worker := range []string{"ada", "grace"} {
		err := db.Put(ctx, []byte("lock/backup"), []byte(worker), kvd.IfAbsent(), kvd.TTL(time.Minute))
		switch {
		case err == nil:
			fmt.Println(worker, "has the lock")
		case errors.Is(err, kvd.ErrConflict):
			fmt.Println(worker, "comes too late")
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// ada has the lock
	// grace comes too late
}

// A counter of one key needs no transaction: it is written only if it still has
// the version that was read.
func ExampleIfVersion() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	visits := []byte("visits")
	for {
		item, err := db.GetItem(ctx, visits)
		if err != nil && !errors.Is(err, kvd.ErrNotFound) {
			log.Fatal(err)
		}
		n, _ := strconv.Atoi(string(item.Value)) // 0 if it is absent
		err = db.Put(ctx, visits, []byte(strconv.Itoa(n+1)), kvd.IfVersion(item.Version))
		if errors.Is(err, kvd.ErrConflict) {
			continue // another caller was faster
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("visit", n+1)
		break
	}
	// Output: visit 1
}

// A job moves from one state to the next in one round trip, unless its state is
// another; the refusal is noted too.
func ExampleClient_Execute() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	state := []byte("job/1/state")
	start := kvd.Execution{
		If:   []kvd.Guard{{Key: state, Condition: kvd.IfAbsent()}},
		Then: new(kvd.Batch).Put(state, []byte("running")).Put([]byte("job/1/worker"), []byte("ada")),
		Else: new(kvd.Batch).Put([]byte("job/1/refused"), []byte("ada")),
	}
	for range 2 {
		result, err := db.Execute(ctx, start)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("started:", result.Succeeded)
	}
	// Output:
	// started: true
	// started: false
}

// What a snapshot shows stays as it was, however long one looks.
func ExampleClient_Snapshot() {
	inMemory, stop := memory()
	defer stop()
	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.Put(ctx, []byte("page"), []byte("first edition")); err != nil {
		log.Fatal(err)
	}

	snapshot, err := db.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	if err := db.Put(ctx, []byte("page"), []byte("second edition")); err != nil {
		log.Fatal(err)
	}
	for _, reader := range []kvd.Reader{snapshot, db} {
		page, err := reader.Get(ctx, []byte("page"))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", page)
	}
	// Output:
	// first edition
	// second edition
}

// A call that is slow says where: here, whether it was the server at all.
func ExampleTimed() {
	inMemory, stop := memory()
	defer stop()

	ctx := context.Background()
	db, err := kvd.Open(address, inMemory)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	var t kvd.Timings
	if err := db.Put(ctx, []byte("key"), []byte("value"), kvd.Timed(&t)); err != nil {
		log.Fatal(err)
	}
	elsewhere := t.ClientQueue + t.Network + t.Return
	fmt.Println(t.Attempts, "try;", elsewhere <= t.Total())
	// Output: 1 try; true
}
