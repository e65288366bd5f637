package jsonrpc

import "testing"

const call400 = `{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"create_refund","arguments":{"payment_id":"pay_8cK2vQ","amount":2000,"currency":"EUR","reason":"duplicate charge","notify":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.4.2"},"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"elicitation":{}}}}}`

func BenchmarkParse400(b *testing.B) {
	body := []byte(call400)
	var m Message
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := m.Parse(body); err != nil {
			b.Fatal(err)
		}
	}
}
