module pinfold

go 1.26
