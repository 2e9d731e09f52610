"""Reads source text without compiling it: masks comments and strings, finds includes and functions."""

import ast
import re

_TOKEN = re.compile(
    r"""(?P<number>\b\d[\w.]*(?:'[\w.]+)+)
      | (?P<raw>\b(?:u8|[uUL])?R"(?P<delimiter>[^\s()\\]{0,16})\((?:.|\n)*?\)(?P=delimiter)")
      | (?P<comment>//(?:\\\n|[^\n])*|/\*(?:.|\n)*?\*/)
      | (?P<string>"(?:\\(?:.|\n)|[^"\\\n])*")
      | (?P<char>'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE)
_DIRECTIVE = re.compile(r"^[ \t]*\#(?:\\\n|[^\n])*", re.MULTILINE)
# White space and access labels before a declaration.
_LEAD = re.compile(r"(?:\s|\b(?:public|private|protected)\s*:(?!:))*")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def mask(text, strings=True):
    """The text with comments (and strings) turned to spaces; every line keeps its number."""

    def replace(match):
        if match["comment"]:
            return _blank(match[0])
        if match["number"] or not strings:
            return match[0]
        return match[0][0] + _blank(match[0][1:-1]) + match[0][-1]

    return _TOKEN.sub(replace, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def includes(text):
    """(line, quoted, path) of every include directive."""
    code = mask(text, strings=False)
    return [(line_of(code, m.start(2)), m[1] == '"', m[2]) for m in _INCLUDE.finditer(code)]


def _without_templates(head):
    while (match := re.search(r"\btemplate\s*<", head)) is not None:
        depth, end = 1, match.end()
        while end < len(head) and depth > 0:
            depth += {"<": 1, ">": -1}.get(head[end], 0)
            end += 1
        head = head[:match.start()] + " " + head[end:]
    return head


def _collapse(text, pattern, replacement):
    while True:
        text, count = re.subn(pattern, replacement, text)
        if count == 0:
            return text


def _kind(head, in_parentheses):
    """What the brace after `head` opens, given that it stands in a namespace or class."""
    if in_parentheses:
        return "init"
    head = _collapse(head, r"\{[^{}]*\}", "()")
    head = _without_templates(head)
    head = head[_LEAD.match(head).end():]
    head = re.sub(r"\[\[.*?\]\]", " ", head, flags=re.DOTALL).strip()
    head = re.sub(r"operator\s*[^\s\w(]+", "operator", head)
    head = re.sub(r"operator\s*\(\s*\)", "operator", head)
    if re.search(r'\bnamespace\b[\w\s:]*$|\bextern\s*"\s*"$', head):
        return "scope"
    head = re.sub(r"\b(alignas|__attribute__|__declspec|noexcept|decltype)\s*(?=\()", "@", head)
    head = _collapse(head, r"\([^()]*\)", "\x01").replace("@\x01", " ")
    if "\x01" not in head and re.search(r"\b(class|struct|union|enum)\b", head):
        return "scope"
    assigned = re.search(r"(?<![=!<>])=(?!=)", head)
    if assigned:
        return "function" if re.match(r"\s*\[[^\]]*\]", head[assigned.end():]) else "init"
    if "\x01" not in head:
        return "init"
    initialisers = re.search(r"\x01[\s\w]*:(?!:)", head)
    if initialisers and not head.rstrip().endswith("\x01"):
        return "init"
    return "function"


def _name(head):
    match = re.search(r"([\w:~]*operator\s*[^\s\w(]+|[\w:~]+)\s*\(", _without_templates(head))
    return match[1] if match else "a lambda"


def cpp_functions(text):
    """(first line, last line, name) of every function body outside other functions; the count of
    lines starts at the signature. Raises ValueError where the braces do not balance."""
    code = _DIRECTIVE.sub(lambda m: _blank(m[0]), mask(text))
    found, stack, head_start, depth = [], [], 0, 0
    for match in re.finditer(r"[{}();]", code):
        at, mark = match.start(), match[0]
        if mark in "()":
            depth += 1 if mark == "(" else -1
        elif mark == ";":
            if depth == 0:
                head_start = at + 1
        elif mark == "{":
            outside = all(kind == "scope" for kind, _, _ in stack)
            kind = _kind(code[head_start:at], depth > 0) if outside else "body"
            stack.append((kind, head_start, depth))
            head_start, depth = at + 1, 0
        else:
            if not stack:
                raise ValueError(f"line {line_of(code, at)}: a closing brace too many")
            kind, start, depth = stack.pop()
            head_start = start if kind == "init" else at + 1
            if kind == "function":
                head = code[start:at]
                first = start + _LEAD.match(head).end()
                found.append((line_of(code, first), line_of(code, at), _name(head)))
    if stack:
        raise ValueError(f"line {line_of(code, stack[-1][1])}: an opening brace is never closed")
    return found


def python_functions(text):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(node.lineno, node.end_lineno, node.name) for node in ast.walk(ast.parse(text))
            if isinstance(node, kinds)]


def shell_functions(text):
    """Functions in the one form that our scripts use: `name() {` ... `}` at the line's start."""
    found, opened = [], None
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"([\w-]+)\s*\(\)\s*\{\s*$", line)
        if match:
            opened = (number, match[1])
        elif line.rstrip() == "}" and opened:
            found.append((opened[0], number, opened[1]))
            opened = None
    return found
