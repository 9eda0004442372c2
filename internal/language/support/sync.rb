# Output appears when it is printed, also when it does not go to a terminal.
$stdout.sync = true
