package walker

const pidCall, closeCall = "39", "3"
