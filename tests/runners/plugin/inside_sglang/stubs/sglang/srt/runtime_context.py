"""The arguments as they are resolved, with what was changed since."""

arguments = {}


class _Context:
    def resolved_server_args_dict(self, base=None):
        return dict(arguments)

    def override(self, source, **fields):
        arguments.update(fields)


class _Spec:
    def __getattr__(self, name):
        return arguments[name]


def get_context():
    return _Context()


def get_spec():
    return _Spec()
