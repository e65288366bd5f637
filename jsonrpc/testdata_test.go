package jsonrpc

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// text is a JSON text in a table under testdata: as a string, as the hexadecimal digits of
// bytes that a string cannot hold, or as parts that are repeated. In a numbered part each "#"
// stands for the number of the repetition, from 0 on.
type text struct {
	Body  string
	Hex   string
	Parts []struct {
		Text     string
		Times    *int
		Numbered bool
	}
}

func (x text) bytes(t testing.TB) []byte {
	t.Helper()
	if x.Hex != "" {
		raw, err := hex.DecodeString(x.Hex)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	var b strings.Builder
	b.WriteString(x.Body)
	for _, part := range x.Parts {
		times := 1
		if part.Times != nil {
			times = *part.Times
		}
		for i := range times {
			if part.Numbered {
				b.WriteString(strings.ReplaceAll(part.Text, "#", strconv.Itoa(i)))
			} else {
				b.WriteString(part.Text)
			}
		}
	}
	return []byte(b.String())
}

// readTable reads a table of the folder that holds those which others can use too.
func readTable[Row any](t testing.TB, name string) []Row {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var rows []Row
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatalf("reading %s: %v", name, err)
	}
	return rows
}
