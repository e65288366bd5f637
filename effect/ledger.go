package effect

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// Ledger holds the records and receipts of effects. All of its methods may be
// called at the same time, also by several processes.
//
// A store decides nothing. To apply a command it loads the record of the key,
// asks [Step], and stores what it says, all of it or nothing, as long as the
// record is as it was loaded: it holds a lock from the one to the other, and
// the write compares key, attempt, token and state and checks that it hit;
// where it did not, the store begins again. Of several commands in one
// write the later meets the record that the earlier leaves. The time is the
// store's own: hosts that share a store share its clock.
//
// An error says that the store did not answer: what was asked may have been
// done or not. The same command can be repeated without harm, a [Call] with the
// same token.
type Ledger interface {
	// Apply applies a command to the record of its key. It returns once what
	// the change says is durable, which means that it survives a loss of power;
	// a change that is not Written costs no write. Concurrent commands share
	// their writes to the disk.
	Apply(ctx context.Context, c Command) (Change, error)

	// Load returns the record of a key, as it was last written, and its
	// receipts, the oldest first. The State of a key without a record is None.
	Load(ctx context.Context, key Key) (Record, []Receipt, error)

	// List returns the records that a filter selects, in the order in which
	// their states began, the oldest first. They carry no stored result.
	List(ctx context.Context, f Filter) ([]Record, error)

	// Receipts returns the last receipts, the newest first, at most limit.
	Receipts(ctx context.Context, limit int) ([]Receipt, error)

	// Task returns the record whose call became a task: one that is deferred,
	// or that is ambiguous since the time for its task has passed. It finds none
	// if there are several: a server that lost its tasks may have given an id
	// again, and then what is said of that task may be said of any of them.
	Task(ctx context.Context, t Task) (Record, bool, error)

	// Due returns keys of which [Record.Due] has come, at most limit.
	Due(ctx context.Context, limit int) ([]Key, error)

	// Census counts the records in each state, for metrics.
	Census(ctx context.Context) (Census, error)

	// Secret returns what callers are digested with: random, made with the
	// store, and the same for all who share it.
	Secret(ctx context.Context) (Secret, error)

	// Close ends the use of the store, after what is being done in it.
	Close() error
}

// Secret is the key of the digests by which callers are told apart. Without it
// nobody can find out from a record who a caller is by trying.
type Secret [32]byte

// Filter selects records.
type Filter struct {
	State  State     // None selects every state
	Before time.Time // selects states that began before it; zero selects all
	Limit  int       // how many records at most
}

// Task names a task as the one who asks for it does. All of it must be equal
// to what the record says: task ids are a server's own. An empty ID names none.
type Task struct {
	Namespace string
	Upstream  string
	Caller    string
	ID        string
}

// Census is how many records there are in each state.
type Census struct {
	Records map[State]int64
	Oldest  time.Time // when the oldest ambiguous one became so; zero if there is none
}

// Sweep does what is due in a ledger, so that what nobody asks for is true
// without traffic, and returns the changes. It is meant to be called several
// times within a lease, by every process that uses the ledger.
func Sweep(ctx context.Context, l Ledger) ([]Change, error) {
	const batch = 256
	var changes []Change
	for {
		keys, err := l.Due(ctx, batch)
		if err != nil {
			return changes, err
		}
		swept, err := sweep(ctx, l, keys)
		changes = append(changes, swept...)
		if err != nil || len(keys) < batch || len(swept) == 0 {
			return changes, err
		}
	}
}

// sweep sweeps keys at the same time, since so they share their writes, and
// returns the changes that were made, also where there was an error.
func sweep(ctx context.Context, l Ledger, keys []Key) ([]Change, error) {
	changes, errs := make([]Change, len(keys)), make([]error, len(keys))
	var all sync.WaitGroup
	for i, key := range keys {
		all.Go(func() { changes[i], errs[i] = l.Apply(ctx, Sweeping{key}) })
	}
	all.Wait()
	written := slices.DeleteFunc(changes, func(c Change) bool { return !c.Written })
	return written, cmp.Or(errs...)
}
