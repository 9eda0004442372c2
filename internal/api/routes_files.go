package api

import (
	"net/http"
	"reflect"

	"pinfold/sandbox"
)

type (
	mkdirBody struct {
		Path string `json:"path"`
		Mode uint32 `json:"mode,omitempty"`
	}
	moveBody struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
)

const filesPath = "/v1/sandboxes/{id}/files"

func (s *server) fileRoutes() []route { return append(s.contentRoutes(), s.directoryRoutes()...) }

func pathParam(doc string) param {
	return param{name: "path", kind: kindText, required: true, doc: doc}
}

func (s *server) contentRoutes() []route {
	scopes, reads := []string{scopeSandbox}, []string{scopeSandbox, scopeRead}
	return []route{
		{
			method: http.MethodGet, path: filesPath, id: "readFile", tag: "Files", summary: "Read a file", head: true, scopes: reads,
			description: "A stream of bytes, whatever is in the file. Range asks for a part (one range); If-Range with the ETag makes sure that it is still the same file.",
			params:      []param{pathParam("The file. Symbolic links are not followed.")},
			headers:     []headerParam{{"Range", "bytes=FIRST-LAST, bytes=FIRST- or bytes=-LAST_N."}, {"If-Range", "The ETag that the range belongs to."}, {"If-None-Match", "The ETag of what you have."}},
			answers: []reply{
				{http.StatusOK, typeBytes, nil, "The whole file."},
				{http.StatusPartialContent, typeBytes, nil, "The range that was asked for."},
				{http.StatusNotModified, "", nil, "What you have is still the same."},
			},
			errors:  []int{http.StatusRequestedRangeNotSatisfiable, http.StatusUnprocessableEntity},
			example: `curl -s "$SERVER/v1/sandboxes/$ID/files?path=out.csv" -H "Authorization: Bearer $KEY" -o out.csv`,
			handle:  on((*call).place, (*call).readFile),
		},
		{
			method: http.MethodPut, path: filesPath, id: "writeFile", tag: "Files", summary: "Write a file", scopes: scopes,
			description: "The body is the file's content, of any size. Missing directories are made.",
			params:      []param{pathParam("The file."), {name: "mode", kind: kindMode, fallback: "644", doc: "Permission bits in octal."}},
			body:        body{raw: typeBytes, doc: "The content."},
			answers:     []reply{jsonReply[sandbox.FileInfo](http.StatusOK, "The file as it is now.")},
			errors:      []int{http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInsufficientStorage},
			example:     `curl -s -T data.csv "$SERVER/v1/sandboxes/$ID/files?path=data.csv" -H "Authorization: Bearer $KEY"`,
			handle:      on((*call).place, (*call).writeFile),
		},
		{
			method: http.MethodDelete, path: filesPath, id: "removeFile", tag: "Files", summary: "Remove a file or directory", scopes: scopes,
			description: "A directory goes with everything in it.",
			params:      []param{pathParam("The file or directory.")}, answers: []reply{{http.StatusNoContent, "", nil, "It is gone."}},
			example: `curl -s -X DELETE "$SERVER/v1/sandboxes/$ID/files?path=data.csv" -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).place, (*call).removeFile),
		},
		{
			method: http.MethodGet, path: filesPath + "/stat", id: "statFile", tag: "Files", summary: "Describe a file", scopes: reads,
			params: []param{pathParam("The file or directory. A symbolic link is described, not followed.")}, answers: []reply{jsonReply[sandbox.FileInfo](http.StatusOK, "What it is.")},
			example: `curl -s "$SERVER/v1/sandboxes/$ID/files/stat?path=data.csv" -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).place, (*call).statFile),
		},
	}
}

func (s *server) directoryRoutes() []route {
	scopes, reads := []string{scopeSandbox}, []string{scopeSandbox, scopeRead}
	limit := param{name: "limit", kind: kindInt, min: 1, max: sandbox.MaxFiles, fallback: "1000", doc: "Entries at most: the first by path."}
	return []route{
		{
			method: http.MethodGet, path: filesPath + "/list", id: "listFiles", tag: "Files", summary: "List a directory", scopes: reads,
			params: []param{
				{name: "path", kind: kindText, fallback: ".", doc: "The directory."},
				{name: "depth", kind: kindInt, min: 1, max: maxDepth, fallback: "1", doc: "1: its own entries; more: what is below them too."},
				limit,
			},
			answers: []reply{jsonReply[sandbox.Listing[sandbox.FileInfo]](http.StatusOK, "The entries, in the order of their paths. unprintable counts those that were left out because of their names.")},
			errors:  []int{http.StatusTooManyRequests},
			example: `curl -s "$SERVER/v1/sandboxes/$ID/files/list?depth=2" -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).place, (*call).listFiles),
		},
		{
			method: http.MethodPost, path: filesPath + "/mkdir", id: "makeDirectory", tag: "Files", summary: "Make a directory", scopes: scopes,
			description: "With those above it that are missing.", body: jsonBody[mkdirBody]("The path, and the permission bits as a number (default 493, which is 0755)."),
			answers: []reply{{http.StatusNoContent, "", nil, "It is there."}}, errors: []int{http.StatusUnprocessableEntity},
			example: `curl -s $SERVER/v1/sandboxes/$ID/files/mkdir -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"path": "data"}'`,
			handle:  withBody((*call).sandbox, (*call).makeDirectory),
		},
		{
			method: http.MethodPost, path: filesPath + "/move", id: "moveFile", tag: "Files", summary: "Move or rename", scopes: scopes,
			body:    jsonBody[moveBody]("From where to where."),
			answers: []reply{{http.StatusNoContent, "", nil, "It is there now."}}, errors: []int{http.StatusConflict, http.StatusUnprocessableEntity},
			example: `curl -s $SERVER/v1/sandboxes/$ID/files/move -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{"from": "a.txt", "to": "b.txt"}'`,
			handle:  withBody((*call).sandbox, (*call).moveFile),
		},
		{
			method: http.MethodGet, path: filesPath + "/watch", id: "watchFiles", tag: "Files", summary: "Watch a directory", scopes: reads,
			description: "A stream of events: ready when the watch has begun, then change, until the client goes away, and end when the sandbox ends. A change of kind overflow says that some were lost: list the directory again.",
			params: []param{
				{name: "path", kind: kindText, fallback: ".", doc: "The directory."},
				{name: "recursive", kind: kindBool, fallback: "false", doc: "What is below it, too."},
			},
			answers: []reply{{http.StatusOK, typeEvents, reflect.TypeFor[sandbox.FileEvent](), "The changes."}},
			example: `curl -sN "$SERVER/v1/sandboxes/$ID/files/watch?recursive=true" -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).place, (*call).watchFiles),
		},
		{
			method: http.MethodGet, path: "/v1/sandboxes/{id}/changes", id: "listChanges", tag: "Files", summary: "List what has changed since the beginning",
			scopes: reads, params: []param{limit}, answers: []reply{jsonReply[sandbox.Listing[sandbox.Change]](http.StatusOK, "The differences. unprintable counts files that were left out because of their names.")},
			errors:  []int{http.StatusTooManyRequests},
			example: `curl -s $SERVER/v1/sandboxes/$ID/changes -H "Authorization: Bearer $KEY"`,
			handle:  on((*call).sandbox, (*call).listChanges),
		},
	}
}

// maxDepth bounds how far below a directory a list goes.
const maxDepth = 64
