package brokenup

// The scripts that need no argument are Scripts, the others return one. Those
// that leave the request unread still log what reached the socket.

// CloseAtOnce closes before anything can have been read. It only ends its own
// direction first and reads what arrives all the same, so that the log is true.
func CloseAtOnce(c *Conn) {
	c.HalfClose()
	c.Drain()
}

// CloseUnread waits until the request begins to arrive and closes without
// reading a byte of it.
func CloseUnread(c *Conn) {
	if c.Await() {
		c.Reset()
	}
}

// CloseAfterHead reads the header of a request and closes.
func CloseAfterHead(c *Conn) {
	c.ReadHead()
}

// ReadThenClose reads one request and closes.
func ReadThenClose(c *Conn) {
	c.Read()
}

// ReadThenReset reads one request and breaks the connection with an RST.
func ReadThenReset(c *Conn) {
	c.Read()
	c.Reset()
}

// Silence reads one request and never answers; it returns when the peer gives
// up.
func Silence(c *Conn) {
	c.Read()
	c.Drain()
}

// Mute reads whatever comes, request or not, and never says a word. To a
// client that wants TLS it is a handshake that does not go on.
func Mute(c *Conn) { c.Drain() }

// CloseInHandshake waits for the first byte, which is the client's part of a
// TLS handshake, and closes.
func CloseInHandshake(c *Conn) {
	if c.Await() {
		c.Reset()
	}
}

// Say reads one request, writes text and closes: a response that is garbage or
// breaks off wherever text ends.
func Say(text string) Script {
	return func(c *Conn) {
		if _, ok := c.Read(); ok {
			c.Send(text)
		}
	}
}

// SayThenHold is Say that leaves the connection open.
func SayThenHold(text string) Script {
	return func(c *Conn) {
		if _, ok := c.Read(); ok && c.Send(text) {
			c.Drain()
		}
	}
}

// Answer answers every request of the connection with r.
func Answer(r Reply) Script {
	return func(c *Conn) {
		for {
			q, ok := c.Read()
			if !ok || !c.Reply(r.For(q)) || r.Framing == Unsized {
				return
			}
		}
	}
}

// Each answers the requests of an upstream in turn, across its connections,
// and the last one again and again.
func Each(replies ...Reply) Script {
	turn := make(chan int, 1)
	turn <- 0
	return func(c *Conn) {
		for {
			q, ok := c.Read()
			if !ok {
				return
			}
			n := <-turn
			turn <- n + 1
			if !c.Reply(replies[min(n, len(replies)-1)].For(q)) {
				return
			}
		}
	}
}

// Early answers after the header, before it reads the body, and then reads it.
func Early(r Reply) Script {
	return func(c *Conn) {
		if !c.ReadHead() || !c.Reply(r) {
			return
		}
		c.ReadBody()
		c.Drain()
	}
}

// Cut sends r's header, with the length of its whole body, and only the first
// n bytes of the body, and closes. In a chunked body the chunk itself is
// complete and what follows is missing.
func Cut(r Reply, n int) Script {
	return func(c *Conn) {
		q, ok := c.Read()
		if !ok {
			return
		}
		r := r.For(q)
		if !c.Head(r) {
			return
		}
		if r.Framing == Chunked {
			c.Chunk(r.Body[:n])
		} else {
			c.Send(r.Body[:n])
		}
	}
}

// Stale answers the first request of each connection with r and does then to
// the reused connection.
func Stale(r Reply, then Script) Script {
	return func(c *Conn) {
		if q, ok := c.Read(); ok && c.Reply(r.For(q)) {
			then(c)
		}
	}
}
