package build

import (
	"embed"
	"slices"
	"strings"
)

// shippedFiles are declarations that every Pinfold carries.
//
//go:embed shipped/*.yaml
var shippedFiles embed.FS

// Shipped returns the text of a declaration that Pinfold carries, by its name.
func Shipped(name string) (text []byte, ok bool) {
	if !slices.Contains(ShippedNames(), name) {
		return nil, false
	}
	text, err := shippedFiles.ReadFile("shipped/" + name + ".yaml")
	return text, err == nil
}

// ShippedNames lists them.
func ShippedNames() (names []string) {
	list, err := shippedFiles.ReadDir("shipped")
	if err != nil {
		return nil // there is one: the compiler has seen to it
	}
	for _, e := range list {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}
