package jsonrpc

import "testing"

func TestFitResult(t *testing.T) {
	for _, c := range []struct{ name, result, modern, legacy string }{
		{"empty", `{}`, `{"resultType":"complete"}`, `{}`},
		{"blank", "{ \n}", `{"resultType":"complete"}`, "{ \n}"},
		{"without it", `{"content":[]}`, `{"resultType":"complete","content":[]}`, `{"content":[]}`},
		{"it alone", `{ "resultType" : "complete" }`, `{ "resultType" : "complete" }`, `{ }`},
		{"first", "{\"resultType\":\"complete\" ,\n\"content\":[]}", "{\"resultType\":\"complete\" ,\n\"content\":[]}", "{\n\"content\":[]}"},
		{"last", `{"content":[], "resultType":"complete"}`, `{"content":[], "resultType":"complete"}`, `{"content":[]}`},
		{"between", `{"a":{"resultType":1},"resultType":"complete","b":2}`, `{"a":{"resultType":1},"resultType":"complete","b":2}`, `{"a":{"resultType":1},"b":2}`},
		{"escaped", `{"result\u0054ype":"complete","b":2}`, `{"result\u0054ype":"complete","b":2}`, `{"b":2}`},
		{"inner one only", `{"a":{"resultType":1}}`, `{"resultType":"complete","a":{"resultType":1}}`, `{"a":{"resultType":1}}`},
		{"odd text", `{"a":"\ud800","a":"` + "\xff" + `"}`, `{"resultType":"complete","a":"\ud800","a":"` + "\xff" + `"}`, `{"a":"\ud800","a":"` + "\xff" + `"}`},
	} {
		kept := c.result
		if got := string(FitResult([]byte(c.result), true)); got != c.modern {
			t.Errorf("%s, modern: got %s", c.name, got)
		}
		if got := string(FitResult([]byte(c.result), false)); got != c.legacy {
			t.Errorf("%s, legacy: got %s", c.name, got)
		}
		if c.result != kept {
			t.Errorf("%s: the result was changed", c.name)
		}
	}
}
