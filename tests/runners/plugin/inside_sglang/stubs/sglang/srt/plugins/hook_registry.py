"""Patches targets once; what cannot be patched is logged, and that is all."""

import enum
import functools
import pkgutil
import sys


class HookType(enum.Enum):
    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"


class HookRegistry:
    hooks = {}
    patched = set()

    @classmethod
    def register(cls, target, hook, hook_type=HookType.AFTER):
        cls.hooks.setdefault(target, []).append((hook_type, hook))

    @classmethod
    def apply_hooks(cls):
        for target, hooks in cls.hooks.items():
            if target in cls.patched:
                continue
            try:
                cls.apply(target, hooks)
            except Exception as error:
                print(f"Failed to apply hooks to {target}: {error!r}", file=sys.stderr)
            else:
                cls.patched.add(target)

    @classmethod
    def apply(cls, target, hooks):
        owner_path, _, name = target.rpartition(".")
        owner = pkgutil.resolve_name(owner_path)
        for hook_type, hook in hooks:
            wrapped = wrap(getattr(owner, name), hook, hook_type)
            original = getattr(owner, name)
            setattr(owner, name, wrapped)
            for module in list(sys.modules.values()):
                for key, value in list(vars(module).items()):
                    if value is original:
                        setattr(module, key, wrapped)


def wrap(original, hook, hook_type):
    @functools.wraps(original)
    def around(*args, **kwargs):
        return hook(original, *args, **kwargs)

    @functools.wraps(original)
    def after(*args, **kwargs):
        result = original(*args, **kwargs)
        changed = hook(result, *args, **kwargs)
        return result if changed is None else changed

    return {HookType.AROUND: around, HookType.AFTER: after}[hook_type]
