package archtest

import (
	"go/ast"
	"path"
	"strconv"
	"strings"
	"testing"
)

// A signature that names somebody else's type makes their releases ours.
func TestNoExportedSignatureNamesForeignTypes(t *testing.T) {
	for _, s := range sources(t) {
		foreign := foreignImports(t, s)
		if s.isTest() || s.file.Name.Name == "main" || len(foreign) == 0 {
			continue
		}
		for _, decl := range s.file.Decls {
			for _, typ := range exportedTypes(decl) {
				ast.Inspect(typ, func(n ast.Node) bool {
					if _, isBody := n.(*ast.BlockStmt); isBody {
						return false
					}
					sel, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					if x, ok := sel.X.(*ast.Ident); ok && foreign[x.Name] {
						t.Errorf("%s:%d: an exported signature names %s.%s", s.path, s.lineOf(n.Pos()), x.Name, sel.Sel.Name)
					}
					return true
				})
			}
		}
	}
}

// foreignImports returns the names under which a file imports other people's
// modules.
func foreignImports(t *testing.T, s source) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, spec := range s.file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(imported, "/")
		if !strings.Contains(first, ".") { // the standard library's or our own
			continue
		}
		if spec.Name != nil {
			names[spec.Name.Name] = true
		} else {
			names[path.Base(imported)] = true
		}
	}
	return names
}

// exportedTypes returns the type expressions that a declaration shows to other
// packages: parameters, results and exported fields.
func exportedTypes(decl ast.Decl) []ast.Node {
	var all []ast.Node
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && exportedReceiver(d) {
			all = append(all, d.Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if typ, ok := spec.(*ast.TypeSpec); ok && typ.Name.IsExported() {
				all = append(all, exportedParts(typ.Type)...)
			}
			if value, ok := spec.(*ast.ValueSpec); ok && value.Type != nil && value.Names[0].IsExported() {
				all = append(all, value.Type)
			}
		}
	}
	return all
}

// exportedReceiver says whether a method can be called from outside; a
// function can.
func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.IsExported() {
			exported = true
		}
		return true
	})
	return exported
}

// exportedParts returns what of a type is visible: of a struct, its exported
// fields.
func exportedParts(typ ast.Expr) []ast.Node {
	structure, ok := typ.(*ast.StructType)
	if !ok {
		return []ast.Node{typ}
	}
	var all []ast.Node
	for _, field := range structure.Fields.List {
		if len(field.Names) == 0 || field.Names[0].IsExported() {
			all = append(all, field.Type)
		}
	}
	return all
}
