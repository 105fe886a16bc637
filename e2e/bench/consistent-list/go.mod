module sluice.local/consistent-list

go 1.26.0
