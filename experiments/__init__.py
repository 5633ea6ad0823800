"""The laboratory: a folder per paper, a script per table or figure, one small runner for all.

It is part of a clone and of the source distribution, not of the installed package.
"""
