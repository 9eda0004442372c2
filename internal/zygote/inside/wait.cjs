// A Node that waits for one program. It says that it is ready, reads what to
// run from its standard input, and becomes that program. What it reads is described in
// package zygote (handover.go).
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const Module = require("node:module");

const [marker, ...modules] = process.argv.slice(2);
for (const name of modules) require(require.resolve(name, { paths: [process.cwd()] }));
fs.writeSync(1, marker + "\n");

function readExactly(n) {
  const buffer = Buffer.alloc(n);
  for (let at = 0; at < n; ) {
    const got = fs.readSync(0, buffer, at, n - at, null);
    if (got === 0) process.exit(0); // nobody needs this interpreter any more
    at += got;
  }
  return buffer;
}

const job = JSON.parse(readExactly(parseInt(readExactly(8).toString(), 16)).toString());
if (typeof job.code === "string") fs.writeFileSync(job.file, job.code);
Object.assign(process.env, job.env);
process.argv.splice(1, process.argv.length, path.resolve(job.file), ...(job.args || []));
process.execArgv.length = 0;
Module.runMain();
