// Package api is HTTP API version 1: a thin edge over the engine. It decides
// who may ask, reads requests strictly, turns them into calls of the engine and
// writes down what came back; what lives and dies is the engine's business.
//
// One table (the routes_*.go files) holds every route with its parameters,
// bodies, answers, scope and handler. The handlers, the OpenAPI document and
// the page for readers are all made from it, so they cannot disagree.
//
// Three kinds of people are on the other side, and none is trusted: the client
// (bounded, strictly read bodies; deadlines on every read and write), the page
// in somebody's browser (Host and Origin are checked before anything else),
// and the guest (its files, output and servers travel as data that cannot
// become headers, events or pages of ours).
package api
