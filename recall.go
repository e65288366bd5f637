package gateway

import (
	"bytes"
	"time"
)

// keptList is the text of a list that was learned. Most lists are the same again
// and again: to compare one with it while it is relayed costs a fraction of what
// a copy and a digest of it would.
type keptList struct {
	digest uint64
	before []byte // the text up to the id of the request that it answered
	after  []byte
}

// keepList keeps a list that was learned.
func (c *catalogue) keepList(digest uint64, response, id []byte) {
	at := findID(response, id)
	if at < 0 || uint64(len(response)) > c.lists.GetMaximum() {
		return
	}
	text := bytes.Clone(response)
	c.lists.Set(digest, &keptList{digest, text[:at], text[at+len(id):]})
}

// recall returns a list that a caller was shown, as far as it can be told by its
// length, -1 if it is not known, and its first piece; nil if there is none.
func (c *catalogue) recall(key viewKey, id []byte, length int64, piece []byte) *recalled {
	for _, key := range [...]viewKey{key, key.public()} {
		v, ok := c.views.GetIfPresent(key)
		if !ok {
			continue
		}
		for digest := range v.pages {
			list, ok := c.lists.GetIfPresent(digest)
			if !ok {
				continue
			}
			r := &recalled{list: list, text: [...][]byte{list.before, id, list.after}}
			r.rest = r.text
			if ahead := *r; (length < 0 || length == r.length()) && ahead.match(piece) {
				return r
			}
		}
	}
	return nil
}

// recalled is a list that is compared with one that is kept.
type recalled struct {
	list    *keptList
	text    [3][]byte // of the list as the answer to this request
	rest    [3][]byte // of it, what did not come yet
	matched int       // bytes that came
}

func (r *recalled) length() (n int64) {
	for _, part := range r.text {
		n += int64(len(part))
	}
	return n
}

// whole reports whether all of the list came.
func (r *recalled) whole() bool { return int64(r.matched) == r.length() }

// mayEnd reports whether the list can be whole with what came: all but white space
// behind it.
func (r *recalled) mayEnd() bool {
	for _, part := range r.rest {
		if !isBlank(part) {
			return false
		}
	}
	return true
}

// match takes the next piece, or reports that it is of another list.
func (r *recalled) match(piece []byte) bool {
	rest, size := r.rest, len(piece)
	for i, part := range rest {
		n := min(len(part), len(piece))
		if !bytes.Equal(part[:n], piece[:n]) {
			return false
		}
		rest[i], piece = part[n:], piece[n:]
	}
	if len(piece) > 0 {
		return false
	}
	r.rest = rest
	r.matched += size
	return true
}

// appendTo appends what came to text.
func (r *recalled) appendTo(text []byte) []byte {
	n := r.matched
	for _, part := range r.text {
		part = part[:min(n, len(part))]
		text, n = append(text, part...), n-len(part)
	}
	return text
}

// recall looks for a list that is kept and begins like this one.
func (w *besideWriter) recall(piece []byte) *recalled {
	return w.c.h.catalogue.recall(w.c.viewKey(), w.c.message.ID, w.whole, piece)
}

// recognize renews the page of a list that came whole, and reports whether it is
// still known.
func (w *besideWriter) recognize() bool {
	if !w.same.whole() || !w.c.h.catalogue.recognize(w.c.viewKey(), w.same.list.digest, time.Now()) {
		return false
	}
	countPage(pageSeen)
	return true
}

// recognize is seenBefore, once all is learned that was shown before.
func (c *catalogue) recognize(key viewKey, digest uint64, now time.Time) bool {
	c.catchUp(key.public())
	return c.seenBefore(key, digest, now)
}

// writeDown writes down what came so far of a list that turns out to be none
// that is known, or reports that it does not fit.
func (w *besideWriter) writeDown() bool {
	if !w.makeRoom(w.same.matched) {
		return false
	}
	w.text = w.same.appendTo(w.text[:0])
	w.same = nil
	return true
}
