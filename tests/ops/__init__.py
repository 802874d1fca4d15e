"""Tests of the operator table: every row on awkward values, and the matrix of rows x dtypes x backends."""
