// Package zygotetest has programs for tests of interpreters that are copies of one another.
package zygotetest

// Hoard is a module, called treasure, that begins all sorts of random numbers while it is loaded.
const Hoard = `
import random, uuid, ssl, os, secrets, tempfile, sqlite3, hashlib, multiprocessing
mine = random.Random(); mine.random()
class Own(random.Random): pass
own = Own(); own.gauss(0, 1)
random.random(); random.gauss(0, 1); uuid.uuid1(); uuid.uuid4(); uuid.getnode(); ssl.RAND_bytes(8); secrets.token_hex(); os.urandom(8)
next(tempfile._get_candidate_names()); multiprocessing.current_process().authkey
db = sqlite3.connect(":memory:"); db.execute("select random()").fetchone()
try:
    import numpy, numpy.random as r
    numbers, state, bits, seeds = r.default_rng(), r.RandomState(), r.SFC64(), r.SeedSequence()
    numbers.random(); state.standard_normal(); r.standard_normal(); r.random()
except ImportError: numpy = None
`

// HoardCode says, by say(key, value), what two copies of an interpreter with the module must
// not have in common.
const HoardCode = `
import treasure as t, random, uuid, ssl, os, secrets, tempfile, multiprocessing, hashlib, ctypes
say("urandom", os.urandom(16).hex()); say("random", random.random()); say("gauss", random.gauss(0, 1)); say("secrets", secrets.token_hex())
say("uuid1", uuid.uuid1()); say("node", uuid.uuid1().node); say("getnode", uuid.getnode()); say("uuid4", uuid.uuid4()); say("ssl", ssl.RAND_bytes(16).hex())
say("mine", t.mine.random()); say("own", t.own.random()); say("own_gauss", t.own.gauss(0, 1))
say("tempfile", next(tempfile._get_candidate_names())); say("authkey", bytes(multiprocessing.current_process().authkey).hex())
say("sqlite", t.db.execute("select random()").fetchone()[0]); say("blob", t.db.execute("select hex(randomblob(16))").fetchone()[0])
if t.numpy:
    say("numpy", t.r.random()); say("normal", t.r.standard_normal()); say("generator", t.numbers.random()); say("state", t.state.random_sample()); say("state_normal", t.state.standard_normal())
    say("bits", t.bits.random_raw()); say("seeds", t.seeds.spawn(1)[0].generate_state(2)); say("spawned", t.numbers.bit_generator._seed_seq.spawn(1)[0].generate_state(2) if hasattr(t.numbers.bit_generator, "_seed_seq") else secrets.token_hex())
`

// Drawn are the keys of what is drawn from generators that only an interpreter has, so that
// copies which do not begin anew share all of it. With numpy, DrawnByNumpy is too.
var (
	Drawn        = []string{"mine", "own", "own_gauss", "authkey", "sqlite", "blob", "getnode"}
	DrawnByNumpy = []string{"numpy", "normal", "generator", "state", "state_normal", "bits", "seeds"}
)
