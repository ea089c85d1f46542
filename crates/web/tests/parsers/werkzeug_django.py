"""Reads logins as Werkzeug and Django do. A line of input is one login, a line of output what they find."""

import json
import sys
from io import BytesIO

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIRequest
from werkzeug.wrappers import Request

settings.configure(DEFAULT_CHARSET="utf-8", ALLOWED_HOSTS=["*"])
django.setup()


def environ(login):
    body = bytes.fromhex(login["body"])
    return {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/login",
        "QUERY_STRING": login["query"],
        "SERVER_NAME": "shop",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "CONTENT_TYPE": login["type"],
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
    }


def all_of(values):
    """Every value of every member that a service would take for the account."""
    return [value for name in ("user", "user[]") for value in values.getlist(name)]


def member(value):
    return [str(value["user"])] if isinstance(value, dict) and "user" in value else []


def werkzeug(login):
    request = Request(environ(login))
    if "json" in login["type"]:
        return all_of(request.args) + member(request.get_json())
    return all_of(request.values)


def django_(login):
    request = WSGIRequest(environ(login))
    if "json" in login["type"]:
        return all_of(request.GET) + member(json.loads(request.body))
    return all_of(request.GET) + all_of(request.POST)


for line in sys.stdin:
    login = json.loads(line)
    found = {}
    for name, read in (("Werkzeug", werkzeug), ("Django", django_)):
        try:
            found[name] = read(login)
        except Exception as refused:  # A parser that refuses a login finds no account in it.
            found[name] = []
    print(json.dumps(found))
