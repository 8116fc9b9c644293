# SPDX-License-Identifier: Apache-2.0
# Writes the comments of each Go file as Markdown to a file in the folder `out`, line for line, so that Vale reads them
# as it reads a page. A % in the name of the Markdown file is a / in the path of the Go file. Generated files stay empty.
FNR == 1 {
	close(page)
	page = FILENAME
	gsub("/", "%", page)
	page = out "/" page ".md"
	generated = 0
}
/^\/\/ Code generated .* DO NOT EDIT\.$/ { generated = 1 }
generated { next }
/^[ \t]*\/\/( |$)/ { sub(/^[ \t]*\/\/ ?/, ""); print > page; next }
/^[ \t]*\/\/\t/ { print "    " $0 > page; next } # a block of code
# A comment behind code is an item of its own. After a quote, it may be text in a string.
match($0, /[ \t]\/\/ [^"`]*$/) { print "- " substr($0, RSTART + 4) > page; next }
{ print "" > page }
