package sqlite_test

import (
	"context"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/effect/sqlite"
)

// Whatever a change changes of a record is stored, and nothing else with it.
func TestEachFieldIsStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := open(t, path)
	defer shut(t, l)
	change, err := l.Apply(t.Context(), newCall("x"))
	if err != nil {
		t.Fatal(err)
	}
	stored := change.After
	stored.Hold.Digest[0] = 1
	var each func(name string, field reflect.Value)
	each = func(name string, field reflect.Value) {
		switch value := field.Interface().(type) {
		case effect.Key: // that is another record
			return
		case effect.Hold:
			for i := range field.NumField() {
				each(name+"."+field.Type().Field(i).Name, field.Field(i))
			}
			return
		case effect.State:
			field.Set(reflect.ValueOf(value%6 + 1))
		case int64:
			field.SetInt(value + 1)
		case int:
			field.SetInt(int64(value) + 1)
		case bool:
			field.SetBool(!value)
		case string:
			field.SetString(value + "é\x00")
		case time.Duration:
			field.SetInt(int64(value + time.Second))
		case time.Time:
			field.Set(reflect.ValueOf(time.UnixMicro(value.UnixMicro() + 62135596800000001).UTC()))
		case []byte:
			field.SetBytes(append([]byte("a"), value...))
		case effect.Outline:
			field.Set(reflect.ValueOf(effect.Outline{"": 0, "näme": 65535, strings.Repeat("long", 99): 7}))
		case effect.Token:
			value[3]++
			field.Set(reflect.ValueOf(value))
		case effect.Fingerprint:
			value[3]++
			field.Set(reflect.ValueOf(value))
		case effect.StateDigest:
			value[3]++
			field.Set(reflect.ValueOf(value))
		default:
			t.Fatalf("%s: what is another %T?", name, value)
		}
		before := change.After
		change.After, change.Before, change.Receipts = stored, before, nil
		if err := sqlite.Store(t.Context(), path, change); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, receipts, err := l.Load(t.Context(), stored.Key); err != nil || !reflect.DeepEqual(got, stored) || len(receipts) != 1 {
			t.Errorf("%s: %v, with %d receipts\ngot  %+v\nwant %+v", name, err, len(receipts), got, stored)
		}
	}
	record := reflect.ValueOf(&stored).Elem()
	for _, outline := range []effect.Outline{nil, {}} {
		stored.Outline = outline
		for i := range record.NumField() {
			each(record.Type().Field(i).Name, record.Field(i))
		}
	}
	for _, empty := range []func(){
		func() { stored.Outline = effect.Outline{} },
		func() { stored.Outline = nil },
		func() { stored.Answer = []byte{} },
		func() { stored.Answer = nil },
		func() { stored.Hold = effect.Hold{} },
	} {
		empty()
		each("Since", record.FieldByName("Since"))
	}
}

// Receipts that do not lead from one to the next, or lead to another record's,
// are an error. Their record stays.
func TestBrokenTrail(t *testing.T) {
	for name, sql := range map[string]string{
		"missing":        `DELETE FROM receipts WHERE id = 1`,
		"the last one":   `DELETE FROM receipts WHERE id = 2`,
		"another's":      `UPDATE receipts SET previous = 3 WHERE id = 4; UPDATE receipts SET previous = 1 WHERE id = 2; UPDATE receipts SET record = 2 WHERE id = 1`,
		"in a circle":    `UPDATE receipts SET previous = 2 WHERE id = 2`,
		"another record": `UPDATE records SET receipt = 4 WHERE id = 1`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			now := time.Now()
			l := openAt(t, path, &now)
			defer shut(t, l)
			var w workload
			w.call(t.Context(), l, "x", 0)
			w.call(t.Context(), l, "y", 0)
			execute(t, path, sql)
			if _, receipts, err := l.Load(t.Context(), newCall("x").Key); err == nil || !strings.Contains(err.Error(), "cannot be read") {
				t.Errorf("got %+v, %v", receipts, err)
			}
			now = now.Add(newCall("x").Retain)
			if change, err := l.Apply(t.Context(), effect.Sweeping{Key: newCall("x").Key}); err == nil || !strings.Contains(err.Error(), "cannot be read") {
				t.Errorf("got %s, %v", change.Answer, err)
			}
			if records, err := l.List(t.Context(), effect.Filter{Limit: 9}); err != nil || len(records) != 2 {
				t.Errorf("%d records, %v", len(records), err)
			}
		})
	}
}

// The ids of receipts that were deleted are given again: nothing leads to them.
func TestReceiptsAfterDeleted(t *testing.T) {
	now := time.Now()
	l := openAt(t, filepath.Join(t.TempDir(), "ledger.db"), &now)
	defer shut(t, l)
	var w workload
	w.call(t.Context(), l, "old", 2) // it stays: it is ambiguous
	w.call(t.Context(), l, "x", 0)
	now = now.Add(newCall("x").Retain)
	if change, err := l.Apply(t.Context(), effect.Sweeping{Key: newCall("x").Key}); err != nil || change.Answer != effect.Retired {
		t.Fatalf("%s, %v", change.Answer, err)
	}
	if receipts, err := l.Receipts(t.Context(), 9); err != nil || len(receipts) != 2 {
		t.Errorf("%d receipts are left, %v", len(receipts), err)
	}
	w.call(t.Context(), l, "new", 0)
	w.call(t.Context(), l, "x", 1)
	for _, key := range []string{"old", "new", "x"} {
		if _, receipts, err := l.Load(t.Context(), newCall(key).Key); err != nil || len(receipts) != 2 || receipts[0].From != effect.None {
			t.Errorf("%s: %+v, %v", key, receipts, err)
		}
	}
	if len(w.failed) > 0 {
		t.Error(w.failed)
	}
}

// FuzzOutline: what can be read is what was written, and nothing panics.
func FuzzOutline(f *testing.F) {
	f.Add([]byte{})
	f.Add(sqlite.AppendOutline(nil, effect.Outline{"": 0, "amount": 7, strings.Repeat("x", 200): 65535}))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, ok := sqlite.ParseOutline(b)
		if !ok {
			return
		}
		if again, ok := sqlite.ParseOutline(sqlite.AppendOutline(nil, o)); !ok || !reflect.DeepEqual(o, again) {
			t.Errorf("%v became %v", o, again)
		}
	})
}

func openAt(t *testing.T, path string, now *time.Time) *sqlite.Ledger {
	t.Helper()
	l, err := sqlite.Open(context.Background(), path, sqlite.Options{Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}
