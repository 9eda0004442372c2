// Loaded by Node before a program (node --require). It lets Node 18 and later
// run TypeScript, and ES modules that are named .js, in one process and
// without writing files. TypeScript is translated by Sucrase: types are taken
// off, not checked; lines keep their numbers.
"use strict";

const Module = require("node:module");
const fs = require("node:fs");
const path = require("node:path");
const url = require("node:url");
const vm = require("node:vm");

const isTypeScript = (name) => /\.[mc]?ts$/.test(name);

// A main file in TypeScript is ours, whatever package.json says of its type.
let starting = false;
const runMain = Module.runMain;
Module.runMain = (main = process.argv[1]) => {
  if (!isTypeScript(main)) return runMain(main);
  starting = true;
  try {
    return Module._load(main, null, true);
  } finally {
    starting = false;
  }
};

for (const extension of [".ts", ".mts", ".cts"]) {
  Module._extensions[extension] = (module, file) => {
    nameTypeScript();
    compile(module, file, translate(fs.readFileSync(file, "utf8"), file, ["typescript", "imports"]));
  };
}

// TypeScript names the module "./a.ts" as "./a.js", after what it becomes. Programs
// without any have no line of ours in their traces.
let named = false;
function nameTypeScript() {
  if (named) return;
  named = true;
  const resolve = Module._resolveFilename;
  Module._resolveFilename = function (request, parent, ...rest) {
    // What fails is not thrown again here: Node shows the place of the throw.
    if (!parent || !isTypeScript(parent.filename ?? "") || !/\.[mc]?js$/.test(request)) {
      return resolve.call(this, request, parent, ...rest);
    }
    try {
      return resolve.call(this, request, parent, ...rest);
    } catch {
      return resolve.call(this, request.replace(/js$/, "ts"), parent, ...rest);
    }
  };
}

// Node without require(esm) does not look whether a .js file is an ES module.
if (!process.features.require_module) {
  const plain = Module._extensions[".js"];
  Module._extensions[".js"] = (module, file) => {
    const code = fs.readFileSync(file, "utf8");
    const fault = syntaxFault(code, file);
    if (!/^Cannot use (import statement|'import\.meta')|^Unexpected token 'export'|^await is only valid/.test(fault)) {
      return plain(module, file);
    }
    compile(module, file, translate(code, file, ["imports"]));
  };
}

// compile runs translated code as a CommonJS module. A main file may await at
// its top level: nobody waits for its exports.
function compile(module, file, code) {
  if (module.id === "." && /^await is only valid/.test(syntaxFault(code, file))) {
    code = `(async () => {${code}\n})()`;
  }
  module._compile(code, file);
}

// syntaxFault says what is wrong with a CommonJS module's syntax, "" if nothing.
function syntaxFault(code, file) {
  try {
    new vm.Script(Module.wrap(code.replace(/^#!.*/, "")), { filename: file });
    return "";
  } catch (error) {
    return String(error?.message);
  }
}

function translate(source, file, transforms) {
  const sucrase = require("./sucrase.cjs");
  source = source.replace(/^\uFEFF?(#!.*)?/, "");
  try {
    const { tokens } = sucrase.parse(source, false, transforms.includes("typescript"), false);
    refuse(sucrase.TokenType, tokens, source);
    return sucrase.transform(replaceImportMeta(tokens, source), { transforms, keepUnusedImports: false }).code;
  } catch (error) {
    const shown = syntaxError(error, source, file);
    if (!starting) throw shown;
    fs.writeSync(2, `${shown.stack}\n`); // not as our own error: the fault is the program's
    process.exit(1);
  }
}

// refuse stops at what Sucrase would silently drop.
function refuse(type, tokens, source) {
  const text = (t) => (t ? source.slice(t.start, t.end) : "");
  let depth = 0;
  tokens.forEach((token, i) => {
    if (token.type === type.braceL || token.type === type.dollarBraceL) depth++;
    if (token.type === type.braceR) depth--;
    if (token.type === type.at) fail(token, "decorators are not supported");
    if (
      depth === 0 && token.isType && /^(namespace|module)$/.test(text(token)) &&
      /^[\w$]+$/.test(text(tokens[i + 1])) && /^[{.]$/.test(text(tokens[i + 2])) && text(tokens[i - 1]) !== "declare"
    ) {
      fail(token, "namespaces are not supported; export from a file of its own instead");
    }
  });
  function fail(token, message) {
    const lines = source.slice(0, token.start).split("\n");
    throw Object.assign(new SyntaxError(message), { loc: { line: lines.length, column: lines.at(-1).length + 1 } });
  }
}

// replaceImportMeta makes import.meta, which CommonJS lacks, a call.
function replaceImportMeta(tokens, source) {
  const text = (t) => (t ? source.slice(t.start, t.end) : "");
  let out = "", at = 0;
  tokens.forEach((token, i) => {
    if (text(token) === "import" && text(tokens[i + 1]) === "." && text(tokens[i + 2]) === "meta" && text(tokens[i - 1]) !== ".") {
      out += source.slice(at, token.start) + "__importMeta(module)";
      at = tokens[i + 2].end;
    }
  });
  return out + source.slice(at);
}

const metas = new WeakMap();
Object.defineProperty(globalThis, "__importMeta", {
  value: (module) => {
    if (!metas.has(module)) {
      const { filename } = module;
      metas.set(module, {
        filename, dirname: path.dirname(filename), url: url.pathToFileURL(filename).href,
        resolve: (name) => {
          const found = Module.createRequire(filename).resolve(name);
          return path.isAbsolute(found) ? url.pathToFileURL(found).href : found;
        },
      });
    }
    return metas.get(module);
  },
});

// syntaxError shows a translator's error as Node shows its own.
function syntaxError(error, source, file) {
  if (!error?.loc) return error;
  const { line, column } = error.loc;
  const message = error.message.replace(/^Error transforming [^\n]*?: /, "").replace(/ \(\d+:\d+\)$/, "");
  const shown = new SyntaxError(message);
  const code = (source.split("\n")[line - 1] ?? "").slice(0, 200);
  shown.stack = `${file}:${line}:${column}\n${code}\n${" ".repeat(Math.max(0, Math.min(column, 200) - 1))}^\n\nSyntaxError: ${message}`;
  return shown;
}
