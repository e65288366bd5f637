"use strict";

// Preloaded into the conformance suite: its mock servers listen on all interfaces; here they stay on this machine.
// The host is put in at the last step, since an earlier one would make listen() asynchronous, and the suite asks
// for the address right after it.
const { Server } = require("node:net");

const bind = Server.prototype._listen2;
if (typeof bind !== "function") {
  throw new Error("bindlocal.cjs: this Node has no net.Server.prototype._listen2");
}

Server.prototype._listen2 = function (address, port, addressType, ...rest) {
  const anyInterface = address === null || address === undefined || address === "0.0.0.0" || address === "::";
  if (anyInterface && typeof port === "number" && port >= 0) {
    return bind.call(this, "127.0.0.1", port, 4, ...rest);
  }
  return bind.call(this, address, port, addressType, ...rest);
};
