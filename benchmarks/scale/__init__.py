"""A million rows of many images through a whole run: does it keep its memory, and does the plan come true?"""
