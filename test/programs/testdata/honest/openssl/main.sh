# A certificate authority of one's own, and what is signed by it.
set -euo pipefail
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority 2>/dev/null
openssl req -newkey rsa:2048 -nodes -keyout site.key -out site.csr -subj /CN=site 2>/dev/null
openssl x509 -req -in site.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -out site.pem 2>/dev/null
openssl verify -CAfile ca.pem site.pem
echo text | openssl enc -aes-256-cbc -pbkdf2 -pass pass:x | openssl enc -d -aes-256-cbc -pbkdf2 -pass pass:x
openssl dgst -sha256 -sign site.key -out signature "$0" && openssl x509 -in site.pem -pubkey -noout >public.pem
openssl dgst -sha256 -verify public.pem -signature signature "$0"
