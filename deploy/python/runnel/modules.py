"""A torch module out to ONNX, and trained tensors back into its state_dict."""

import copy
import io
import threading
import warnings

import numpy as np
import torch

from .errors import InputError

# Kinds of modules that hold tensors: one operator of Runnel after the other, as {its name of a tensor (the end of the archive's name):
# where the module has it}. Of several modules that are one operator: a tuple, one behind the other.
_OPERATORS = {
    torch.nn.Conv1d: [{"weight": "weight", "bias": "bias"}],
    torch.nn.Conv2d: [{"weight": "weight", "bias": "bias"}],
    torch.nn.Linear: [{"weight": "weight", "bias": "bias"}],
    torch.nn.modules.batchnorm._BatchNorm: [{"scale": "weight", "shift": "bias", "running_mean": "running_mean",
                                             "running_var": "running_var"}],
    torch.nn.LayerNorm: [{"scale": "weight", "shift": "bias"}],
    torch.nn.Embedding: [{"weight": "weight"}],
    torch.nn.MultiheadAttention: [{"weight": "in_proj_weight", "bias": "in_proj_bias"},
                                  {"weight": "out_proj.weight", "bias": "out_proj.bias"}],
}


# torch.onnx.export has a state for the whole process.
_EXPORTS = threading.Lock()

# Attention of one sequence to another.
_OF_TWO_SEQUENCES = (torch.nn.Transformer, torch.nn.TransformerDecoder, torch.nn.TransformerDecoderLayer)


def _copy(module):
    """On the host. InputError: weights that are computed of others have no copy."""
    try:
        return copy.deepcopy(module).cpu()
    except RuntimeError as error:
        raise InputError(f"the module cannot be copied; weights that are computed of others, as weight_norm's, are made plain by "
                         f"remove_weight_norm: {' '.join(str(error).split())}") from error


def _kind(module):
    return next((kind for kind in _OPERATORS if isinstance(module, kind)), None)


def _complaint(path, part):
    """Why a part whose parameters are known cannot be trained; None: it can."""
    name = f"{path or 'the module'} ({type(part).__name__})"
    if isinstance(part, _OF_TWO_SEQUENCES):
        return (f"{name} attends from one sequence to another, which cannot be trained; nn.TransformerEncoder and "
                "nn.TransformerEncoderLayer can")
    if isinstance(part, torch.nn.LayerNorm) and not part.elementwise_affine:
        return f"{name} has no weights; with elementwise_affine it can be trained"
    if isinstance(part, torch.nn.MultiheadAttention) and (part.in_proj_weight is None or part.bias_k is not None):
        return f"{name} has kdim, vdim or add_bias_kv; self-attention of one size can be trained"
    return None


def check(module):
    """InputError names all parts of the module that cannot be trained."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"the module is a {type(module).__name__}, not a torch.nn.Module")
    found, unknown, inside = [], [], ()
    for path, part in module.named_modules():
        if inside and path.startswith(inside):
            continue
        complaint = _complaint(path, part)
        if complaint:
            found.append(complaint)
        if isinstance(part, _OF_TWO_SEQUENCES):
            inside += (path + "." if path else "",)
        elif list(part.named_parameters(recurse=False)) and _kind(part) is None:
            unknown.append(f"{path or 'the module'} ({type(part).__name__})")
    if unknown:
        found.append(f"parameters of {', '.join(unknown)} cannot be trained; those of convolutions, linear, batch norm, layer norm, embedding "
                     "and attention modules can")
    if found:
        raise InputError("; ".join(found))


def listed(names):
    """The first of many names, for one line."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def frozen(module):
    """Names of the parameters that a loop of torch would leave as they are."""
    return [name for name, values in module.named_parameters() if not values.requires_grad]


def _computed(module, sample, hook_of):
    """What the module gives for the sample, with a forward hook on each submodule for which hook_of(path, part) gives one."""
    hooks = []
    for path, part in module.named_modules():
        hook = hook_of(path, part)
        if hook is not None:
            hooks.append(part.register_forward_hook(hook))
    try:
        with torch.enable_grad():  # without, torch may take ways that are not exported
            return module(sample)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the module does not compute samples of shape {tuple(sample.shape[1:])}: "
                         f"{' '.join(str(error).split())}") from error
    finally:
        for hook in hooks:
            hook.remove()


def _is_of_positions(value, positions):
    """Of an embedding's input, where the samples are all zeros."""
    return positions > 1 and torch.equal(value.flatten(), torch.arange(positions))


def tokens_of(module, sample_shape):
    """Rows of the embedding that reads the samples; 0: none does, samples are numbers."""
    if len(sample_shape) != 1 or not any(isinstance(part, torch.nn.Embedding) for part in module.modules()):
        return 0
    rows = []

    def hook_of(_, part):
        return (lambda part, inputs, __: rows.append((part.num_embeddings, inputs[0]))) if isinstance(part, torch.nn.Embedding) else None

    _computed(_copy(module).eval(), torch.zeros(1, *sample_shape, dtype=torch.long), hook_of)
    return next((count for count, value in rows if not _is_of_positions(value, sample_shape[-1])), 0)


def _operators(calls, sample):
    """[(path, {tensor there: tensor of the module})] of calls, with the vectors of positions in their embedding's."""
    operators, positions = [], None
    for path, part, value, _ in calls:
        if isinstance(part, torch.nn.Embedding):
            if _is_of_positions(value, sample.shape[-1]):
                positions = f"{path}.weight"
                continue
        for tensors in _OPERATORS[_kind(part)]:
            operators.append((path, {there: f"{path}.{here}" if path else here for there, here in tensors.items()}))
    if positions is not None:
        first = next((tensors for path, tensors in operators if path in [c[0] for c in calls if isinstance(c[1], torch.nn.Embedding)]), None)
        if first is None:
            raise InputError(f"{positions}: vectors of positions without an embedding of tokens")
        first["positions"] = positions
    return operators


def _before(node, ends):
    """The node of the graph that made a tensor, and all before it, but for what lies before one of ends."""
    seen, ahead = set(), [node]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node not in ends:
            ahead.extend(before for before, _ in node.next_functions)
    return seen


def _reached(node, ends):
    """Of ends, {node: name}, the names of those before the node."""
    return {ends[one] for one in _before(node, ends) if one in ends}


def _two_factors(node, ends):
    """The names that the two factors of a product come from, one each; None: the node is no such product."""
    if not node.name().startswith(("Bmm", "Mm")):
        return None
    factors = [_reached(before, ends) for before, _ in node.next_functions[:2]]
    return [names.pop() for names in factors] if [len(names) for names in factors] == [1, 1] else None


def _attentions(calls, output):
    """The linear modules that make queries, keys and values of one input: [(path, path, path)], in this order."""
    ends = {made.grad_fn: path for path, part, _, made in calls if isinstance(part, torch.nn.Linear)}
    nodes, found = _before(output.grad_fn, {}), []
    for node in nodes:
        if node.name().startswith("ScaledDotProduct"):
            parts = [_reached(before, ends) for before, _ in node.next_functions[:3]]
            if all(len(names) == 1 for names in parts):
                found.append(tuple(names.pop() for names in parts))
    # Shares are behind a softmax; what mixes values by them has it as a factor.
    shares = {node: node for node in nodes if node.name().startswith("Softmax")}
    for node in nodes:
        mixed = _two_factors(node, {**ends, **shares})
        if mixed is None or mixed[0] not in shares or not isinstance(mixed[1], str):
            continue
        scores = [_two_factors(before, ends) for before in _before(mixed[0], ends)]
        scores = [pair for pair in scores if pair is not None]
        if len(scores) == 1 and len({*scores[0], mixed[1]}) == 3:
            found.append((*scores[0], mixed[1]))
    inputs = {path: value.data_ptr() for path, _, value, _ in calls}
    return [paths for paths in found if len({inputs[path] for path in paths}) == 1]


def _merged(operators, attentions):
    """The reader makes one operator of queries, keys and values, where the first of them stands."""
    for paths in attentions:
        parts = dict(one for one in operators if one[0] in paths)
        together = (", ".join(paths), {name: tuple(parts[path][name] for path in paths) for name in ("weight", "bias")})
        first = next(at for at, one in enumerate(operators) if one[0] in paths)
        operators[first] = together
        operators = [one for one in operators if one[0] not in paths]
    return operators


def operators_in_order(module, sample):
    """What holds tensors, as [(path, {name there: name in the state_dict})] in the order of its computation on `sample`, all zeros,
    which is the order of the exported graph. InputError: one is used twice, or tensors lie in a module of another kind."""
    calls = []  # (path, module, input, output); they stay alive, so that no later value has the same address

    def hook_of(path, part):
        if not list(part.named_parameters(recurse=False)):
            return None
        return lambda _, inputs, output: calls.append((path, part, inputs[0], output))

    check(module)
    output = _computed(module, sample, hook_of)
    if not isinstance(output, torch.Tensor):
        raise InputError(f"the module returns a {type(output).__name__}, not one tensor with an output for each class")
    seen = set()
    for path, part, *_ in calls:
        if id(part) in seen:
            raise InputError(f"{path} computes twice in one forward; shared weights cannot be trained")
        seen.add(id(part))
    return _merged(_operators(calls, sample), _attentions(calls, output))


def export(module, sample_shape, classes, tokens=0, by_position=False):
    """(bytes of ONNX, operators_in_order). The module stays as it is. tokens: samples are whole numbers below it; by_position: with a
    label each."""
    twin = _copy(module).float().requires_grad_()
    sample = torch.zeros(1, *sample_shape, dtype=torch.long if tokens else torch.float)
    order = operators_in_order(twin.eval(), sample)
    with torch.no_grad():
        outputs = tuple(twin(sample).shape)
    if outputs != ((1, *sample_shape, classes) if by_position else (1, classes)):
        raise InputError(f"the module's output for one sample is {outputs}, and there are {classes} classes: its last layer must have "
                         f"{classes} outputs")
    for part in twin.modules():
        # Traced in training mode so that batch norm stays an operator of its own; a batch of one has no statistics.
        part.training = not isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
    file = io.BytesIO()
    try:
        with _EXPORTS, warnings.catch_warnings():
            # Of torch's own checks of shapes, which hold for the file too: its samples have this shape.
            warnings.simplefilter("ignore", torch.jit.TracerWarning)
            torch.onnx.export(twin, sample, file, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
                              opset_version=13)
    except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
        raise InputError(f"torch cannot write the module as ONNX: {str(error).splitlines()[0]}") from error
    return file.getvalue(), order


def _groups(names):
    """The archive's names by operator, in its order: "conv1.0.weight", "conv1.0.bias" are one."""
    groups = {}
    for name in names:
        operator, _, tensor = name.rpartition(".")
        groups.setdefault(operator, {})[tensor] = name
    return list(groups.values())


def _without_ones(shape):
    return [size for size in shape if size != 1]


def load(module, operators, archive):
    """Copies the trained tensors of an .npz into the module, in place. Nothing is changed if one does not fit, or if a parameter that
    requires no gradient was trained."""
    with np.load(archive) as file:
        groups = _groups(file.files)
        if len(groups) != len(operators):
            raise InputError(f"{len(groups)} trained operators for {len(operators)} of the module")
        own = dict(module.named_parameters())
        own.update(module.named_buffers())
        pairs = []
        for (path, tensors), group in zip(operators, groups):
            for there, here in tensors.items():
                names = [here] if isinstance(here, str) else here
                if names[0] not in own:
                    continue  # no bias
                if there not in group:
                    raise InputError(f"{path}: the trained {there} does not fit")
                trained = np.split(file[group[there]], len(names)) if len(names) > 1 else [file[group[there]]]
                for name, values in zip(names, trained):
                    # A table of positions may have more rows than a sample has positions.
                    place = own[name].detach()
                    place = place[:len(values)] if there == "positions" else place
                    # A 1x1 convolution of a mean is linear there: (out, in) in place of (out, in, 1, 1).
                    if _without_ones(place.shape) != _without_ones(values.shape):
                        raise InputError(f"{path}: the trained {there} does not fit")
                    pairs.append((name, place, torch.from_numpy(values).reshape(place.shape)))
    moved = [name for name, place, trained in pairs if name in frozen(module) and not torch.equal(place.cpu().float(), trained.float())]
    if moved:
        raise InputError(f"{listed(moved)}: trained, though requires_grad is False there; rewrite=\"freeze:LAYERS\" must name all such layers")
    with torch.no_grad():
        for _, place, trained in pairs:
            place.copy_(trained)
