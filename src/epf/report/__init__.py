"""A posterior's history as data sets and pictures. Heavy libraries are imported where they are used."""
