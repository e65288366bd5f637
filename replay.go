package gateway

import (
	"net/http"

	"github.com/caddymcp/gateway/effect"
	"github.com/caddymcp/gateway/jsonrpc"
)

// replayed is the value of the member that marks an answer which is given again.
const replayed = `{"outcome":"committed","replayed":true}`

// replay answers a call that has happened with the result that was kept of it,
// under the id of this call.
func (c *call) replay(w http.ResponseWriter, change *effect.Change) error {
	countReplay()
	c.refusal = replayReason
	return c.writeError(w, http.StatusOK, appendReplay(nil, c.message.ID, change.After.Answer, c.admission.Revision.Modern))
}

// replayReason tells in the access log why a call was not forwarded.
const replayReason = "replayed"

// appendReplay appends the response that carries a kept result, fitted to the
// revision and marked.
func appendReplay(dst, id, result []byte, modern bool) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, jsonrpc.FitResult(result, modern)...)
	dst = append(dst, '}')

	reader := readers.Get().(*jsonrpc.ResponseReader)
	defer readers.Put(reader)
	reader.Reset(id)
	reader.Write(dst)
	splice := reader.Close().Splice
	if !splice.OK() {
		return dst
	}
	start, end, text := splice.Edit(nil, []byte(replayed))
	return append(append(append([]byte(nil), dst[:start]...), text...), dst[end:]...)
}
