// Threads, children, servers, files: what ordinary Node programs do.
const assert = require('assert'), fs = require('fs'), http = require('http'), net = require('net'), os = require('os');
const path = require('path'), crypto = require('crypto'), zlib = require('zlib'), dns = require('dns');
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { execFileSync, spawn, fork } = require('child_process');

if (!isMainThread) { parentPort.postMessage(crypto.pbkdf2Sync('a', 'b', 1000, 32, 'sha256').length); return; }
if (process.argv[2] === 'child') { process.send('up', () => process.exit(0)); return; }

(async () => {
  assert.equal(await new Promise((ok, no) => new Worker(__filename).on('message', ok).on('error', no)), 32);
  assert.equal(await new Promise(ok => fork(__filename, ['child']).on('message', ok)), 'up');
  assert.equal(execFileSync('echo', ['hi']).toString(), 'hi\n');
  const code = await new Promise(ok => spawn('sh', ['-c', 'exit 4']).on('close', ok));
  assert.equal(code, 4);

  const server = http.createServer((q, r) => r.end('hello')).listen(0, '127.0.0.1');
  await new Promise(ok => server.on('listening', ok));
  assert.equal(await (await fetch(`http://127.0.0.1:${server.address().port}/`)).text(), 'hello');
  server.close();
  assert.equal((await dns.promises.lookup('localhost', { family: 4 })).address, '127.0.0.1');

  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'benign-'));
  const sock = net.createServer(c => c.end()).listen(path.join(dir, 's'));
  await new Promise(ok => sock.on('listening', ok));
  await new Promise(ok => net.connect(path.join(dir, 's')).on('close', ok).resume());
  sock.close();
  const seen = new Promise(ok => { const w = fs.watch(dir, () => { w.close(); ok(); }); });
  await fs.promises.writeFile(path.join(dir, 'a'), zlib.gzipSync(crypto.randomBytes(1 << 16)));
  await seen;
  fs.copyFileSync(path.join(dir, 'a'), path.join(dir, 'b'));
  await new Promise(ok => fs.createReadStream(path.join(dir, 'a')).pipe(fs.createWriteStream(path.join(dir, 'c'))).on('close', ok));
  fs.cpSync(dir, dir + '2', { recursive: true, filter: f => path.basename(f) !== 's' });
  fs.rmSync(dir, { recursive: true }); fs.rmSync(dir + '2', { recursive: true });
  os.cpus(); os.freemem(); os.userInfo(); os.loadavg(); os.setPriority(1); process.memoryUsage(); process.cpuUsage();
  new SharedArrayBuffer(1024); structuredClone({});
  await WebAssembly.instantiate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
  console.log('benign');
  process.exit(0);
})().catch(e => { console.error(e); process.exit(1); });
