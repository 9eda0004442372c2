package template

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"pinfold/internal/image"
	"pinfold/sandbox"
)

// Account is who an image's programs run as, in the image's own numbers.
type Account struct {
	Name string `json:"name,omitempty"` // "" where the image has none for the number
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Home string `json:"home"` // absolute
}

// check refuses an account that sandboxes cannot have.
func (a Account) check() error {
	if a.UID <= image.MaxID && a.GID <= image.MaxID {
		return nil
	}
	return &sandbox.Error{
		Code: sandbox.CodeUnsafeArchive, Field: "template",
		Message: fmt.Sprintf("the image runs as the user %d of the group %d, and sandboxes have numbers up to %d", a.UID, a.GID, image.MaxID),
		Hint:    "build it with a user of a lower number",
	}
}

// maxAccounts bounds an image's /etc/passwd and /etc/group, in bytes.
const maxAccounts = 1 << 20

// Account finds the image's user in its /etc/passwd and /etc/group. An image that names
// none means root. A name that is not there is an error, as with other runtimes; a
// number is taken as it is.
func (u *Use) Account() (Account, error) {
	root, done, err := u.Files()
	if err != nil {
		return Account{}, err
	}
	defer done()
	return account(root, cmp.Or(u.Template.Image.Config.User, "0"))
}

// account finds "user", "user:group", with names or numbers.
func account(root fs.FS, who string) (Account, error) {
	user, group, grouped := strings.Cut(who, ":")
	a := Account{Home: "/"}
	uid, numeric := number(user)
	line, found := lineOf(root, "/etc/passwd", 7, func(f []string) bool { return f[0] == user || numeric && f[2] == user })
	switch {
	case found:
		a.Name = line[0]
		a.UID, _ = number(line[2])
		a.GID, _ = number(line[3])
		if path.IsAbs(line[5]) {
			a.Home = path.Clean(line[5])
		}
	case numeric:
		a.UID = uid
	default:
		return Account{}, noAccount("user", user)
	}
	if !grouped {
		return a, nil
	}
	gid, numeric := number(group)
	if line, found := lineOf(root, "/etc/group", 4, func(f []string) bool { return f[0] == group }); found {
		gid, numeric = number(line[2])
	}
	if a.GID = gid; !numeric {
		return Account{}, noAccount("group", group)
	}
	return a, nil
}

func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}

// lineOf returns the first fitting line of a table of accounts that has so many fields.
func lineOf(root fs.FS, file string, fields int, fits func([]string) bool) ([]string, bool) {
	text, _ := image.ReadFile(root, file, maxAccounts) // one that is not there has no lines
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimRight(line, "\n"), ":")
		if len(f) >= fields && f[0] != "" && fits(f) {
			if _, ok := number(f[2]); ok {
				return f, true
			}
		}
	}
	return nil, false
}

func noAccount(what, name string) error {
	return &sandbox.Error{
		Code: sandbox.CodeUnsafeArchive, Field: "template",
		Message: fmt.Sprintf("the image runs as the %s \"%s\", who is not in its /etc/passwd and /etc/group", what, sandbox.SafeText(name, 60)),
		Hint:    "build it with that " + what + ", or with a number in its place",
	}
}
