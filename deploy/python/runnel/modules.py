"""A torch module out to ONNX, and trained tensors back into its state_dict."""

import copy
import io

import numpy as np
import torch

from .errors import InputError

# Kinds of modules that hold tensors, with the names that Runnel gives them (the ends of the archive's names).
_TENSORS = {
    torch.nn.Conv1d: ("weight", "bias"),
    torch.nn.Conv2d: ("weight", "bias"),
    torch.nn.Linear: ("weight", "bias"),
    torch.nn.modules.batchnorm._BatchNorm: ("scale", "shift", "running_mean", "running_var"),
}
_HERE = {"scale": "weight", "shift": "bias"}


def _kind(module):
    return next((kind for kind in _TENSORS if isinstance(module, kind)), None)


def parametrised_in_order(module, sample):
    """The submodules that hold tensors, as [(path, module)] in the order of their computation on `sample`, which is the order of
    the exported graph. InputError: one is used twice, or tensors lie in a module of another kind."""
    calls, hooks = [], []
    for path, part in module.named_modules():
        own = list(part.named_parameters(recurse=False))
        if own and _kind(part) is None:
            raise InputError(f"{path or 'the module'} ({type(part).__name__}) holds parameters; convolutions, linear and batch norm "
                             "modules can be trained")
        if own:
            hooks.append(part.register_forward_hook(lambda *_, path=path, part=part: calls.append((path, part))))
    try:
        with torch.no_grad():
            module(sample)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the module does not compute samples of shape {tuple(sample.shape[1:])}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    seen = set()
    for path, part in calls:
        if id(part) in seen:
            raise InputError(f"{path} computes twice in one forward; shared weights cannot be trained")
        seen.add(id(part))
    return calls


def export(module, sample_shape, classes):
    """(bytes of ONNX, paths of the modules with tensors in the graph's order). The module stays as it is."""
    twin = copy.deepcopy(module).cpu().float()
    sample = torch.zeros(1, *sample_shape)
    order = parametrised_in_order(twin.eval(), sample)
    with torch.no_grad():
        outputs = tuple(twin(sample).shape)
    if outputs != (1, classes):
        raise InputError(f"the module's output for one sample is {outputs}, and there are {classes} classes: its last layer must have "
                         f"{classes} outputs")
    for part in twin.modules():
        # Traced in training mode so that batch norm stays an operator of its own; a batch of one has no statistics.
        part.training = not isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
    file = io.BytesIO()
    try:
        torch.onnx.export(twin, sample, file, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, opset_version=13)
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        raise InputError(f"torch cannot write the module as ONNX: {str(error).splitlines()[0]}") from error
    return file.getvalue(), [path for path, _ in order]


def _groups(names):
    """The archive's names by operator, in its order: "conv1.0.weight", "conv1.0.bias" are one."""
    groups = {}
    for name in names:
        operator, _, tensor = name.rpartition(".")
        groups.setdefault(operator, {})[tensor] = name
    return list(groups.values())


def _without_ones(shape):
    return [size for size in shape if size != 1]


def load(module, paths, archive):
    """Copies the trained tensors of an .npz into the module, in place. Nothing is changed if one does not fit."""
    with np.load(archive) as file:
        groups = _groups(file.files)
        if len(groups) != len(paths):
            raise InputError(f"{len(groups)} trained operators for {len(paths)} modules")
        parts = dict(module.named_modules())
        pairs = []
        for path, group in zip(paths, groups):
            part = parts[path]
            for name in _TENSORS[_kind(part)]:
                here = getattr(part, _HERE.get(name, name), None)
                if here is None:
                    continue
                # A 1x1 convolution of a mean is linear there: (out, in) in place of (out, in, 1, 1).
                if name not in group or _without_ones(here.shape) != _without_ones(file[group[name]].shape):
                    raise InputError(f"{path}: the trained {name} does not fit")
                pairs.append((here, torch.from_numpy(file[group[name]]).reshape(here.shape)))
    with torch.no_grad():
        for here, trained in pairs:
            here.copy_(trained)
