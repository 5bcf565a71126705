"""Behind the names of `mirrorfeed`: each calls the rooms and gives back values that stay."""
