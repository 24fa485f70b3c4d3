"""Datagrams of confd, with the vectors of the protocol."""

import json

import pytest

from fakes.confd import KEY, LATE_KEY, VECTORS
from ganeti import errors
from ganeti.confd import answers, wire
