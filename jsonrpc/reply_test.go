package jsonrpc

import "testing"

func TestAppendError(t *testing.T) {
	for _, row := range []struct {
		id      string
		message string
		data    string
		want    string
	}{
		{"", "no", "", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`},
		{"1", "no", "", `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}`},
		{`"\u0061"`, "no", `{"a":1}`, `{"jsonrpc":"2.0","id":"\u0061","error":{"code":-32600,"message":"no","data":{"a":1}}}`},
		{"1", "a \"b\"\n\x00<\xff>", "", `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a \"b\"\n\u0000<` + "\ufffd" + `>"}}`},
	} {
		var id, data []byte
		if row.id != "" {
			id = []byte(row.id)
		}
		if row.data != "" {
			data = []byte(row.data)
		}
		got := string(AppendError([]byte("x"), id, -32600, row.message, data))
		if got != "x"+row.want {
			t.Errorf("%s, want x%s", got, row.want)
		}
		var r ResponseReader
		r.Reset(id)
		r.Write([]byte(got[1:]))
		if a := r.Close(); a.Kind != ErrorResponse || a.Code != -32600 || (a.ID == IDOurs) != (row.id != "") {
			t.Errorf("%s: %+v", got, a)
		}
	}
}
