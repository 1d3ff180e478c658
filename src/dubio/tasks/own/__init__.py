"""The user's own data: a table of texts or numbers, a folder of images, or arrays."""

from dubio.tasks.own.task import own as own
