package walker

const pidCall, closeCall = "172", "57"
