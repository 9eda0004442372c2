# Compiles one Java program and finds out how to start it.
#
#   sh javac.sh FILE OUT JAVAC [FLAG…]
#
# Classes go to the directory OUT; OUT.launch becomes an argument file for java
# that names the class to start.
set -euf
file=$1 out=$2
shift 2
mkdir -p "$out" "$out.src"

# javac wants a public class in a file of its own name. A program that comes
# without a name is called Main.java, whatever its class is called: then a copy
# with the right name is compiled.
dir=$(dirname "$file")
root=$dir
name=$(basename "$file" .java)
type='class|interface|enum|record'
public=$(sed -nE "s/^[[:space:]]*public[[:space:]]+((final|abstract|sealed|non-sealed|strictfp)[[:space:]]+)*($type)[[:space:]]+([[:alnum:]_\$]+).*/\\4/p" "$file" | head -n 1)

# Other files of the program are found from the directory that its package
# starts in.
package=$(sed -nE 's/^[[:space:]]*package[[:space:]]+([[:alnum:]_.]+)[[:space:]]*;.*/\1/p' "$file" | head -n 1 | tr . /)
if [ -n "$package" ]; then
	case /$dir in */"$package") root=./${dir%"$package"} ;; esac
fi

if [ -n "$public" ] && [ "$public" != "$name" ] && [ ! -e "$dir/$public.java" ]; then
	cp "$file" "$out.src/$public.java"
	root=$PWD/$root
	cd "$out.src"
	"$@" -d "$out" -sourcepath "$root" "$public.java"
	name=$public
else
	"$@" -d "$out" -sourcepath "$root" "$file"
fi

# The class to start has main(String[]): its file holds both these words. The
# class named like the file is asked first, then classes outside of others.
cd "$out"
has_main() { LC_ALL=C grep -q main "$1" && LC_ALL=C grep -qF '([Ljava/lang/String;)V' "$1"; }
classes=$(find . -name "$name.class"; find . -name '*.class' | grep -vF '$' | sort)
start=
for class in $classes; do
	start=${start:-$class}
	if has_main "$class"; then
		start=$class
		break
	fi
done
start=${start#./}
printf '%s\n' "${start%.class}" | tr / . >"$out.launch"
