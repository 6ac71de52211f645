package main

// commit is set when the command is linked: see report.Environment.
var commit string
