package memtable
